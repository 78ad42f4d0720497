"""Programs in all of CPython, in sandboxes that bubblewrap makes.

`_serve` keeps a `_sandbox` ready, made of `_layout` and `_filter`; `_program` sees to what the program in it says through
`_child`, which is all of ours that runs inside.
"""

from ._serve import BubblewrapRuntime as BubblewrapRuntime

__all__ = ["BubblewrapRuntime"]
