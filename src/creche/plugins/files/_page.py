"""Pages of a long answer: one line an item, and a last line in brackets that says how to get the next page."""

from creche.errors import ToolFailed

from ._folder import quoted

MAX_PAGE = 5000
"""Items; a page of more is given as one of so many."""


def page_size(limit: int) -> int:
    """Check how many items the model asked for.

    Raises:
      ToolFailed: less than one.
    """
    if limit < 1:
        raise ToolFailed(f"limit is {limit}, and 1 is the least")
    return min(limit, MAX_PAGE)


def continuation(more: str, after: str) -> str:
    """Say how many items are left and where to go on; ``after`` is shown as a JSON string."""
    return f"[{more} more; continue with after={quoted(after)}]"
