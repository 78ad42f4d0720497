"""Tools as typed Python, for the prompt: `_render` makes the text, of the types in `_types` and the checked words in `_text`."""

from ._render import render_stubs as render_stubs

__all__ = ["render_stubs"]
