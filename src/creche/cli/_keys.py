"""What a chat learns from its terminal."""

import attrs


@attrs.frozen
class Typed:
    """A line, or several that were pasted."""

    text: str
    """Without the Enter at its end."""


@attrs.frozen(kw_only=True)
class Interrupted:
    """Ctrl-C."""

    again: bool
    """Whether it is the second one, with nothing typed between the two."""
    has_draft: bool
    """Whether there is something in the line that is being typed."""


@attrs.frozen
class Left:
    """Ctrl-D in an empty line."""


Key = Typed | Interrupted | Left
"""What a chat learns from its terminal."""
