"""Pages of a long answer: one line an item, and a last line in brackets that says how to get the next page."""

from collections.abc import Iterable
from itertools import islice

from creche.errors import ToolFailed

from .._paths import quoted

MAX_PAGE = 5000
"""Items; a page of more is given as one of so many."""

MOST_COUNTED = 10_000
"""Items behind a page that are counted; counting all of a large tree for every page would cost the square of it."""


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


def counted(left: Iterable[object]) -> str:
    """Say how many items are left, and use them up as far as they are counted; give nothing if there are none."""
    more = sum(1 for _ in islice(left, MOST_COUNTED + 1))
    if more > MOST_COUNTED:
        return f"more than {MOST_COUNTED}"
    return str(more) if more else ""
