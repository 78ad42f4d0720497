"""The live view: the tree of agents on a terminal, below what the lead says."""

from ._screen import Screen as Screen
from ._tty import Tty as Tty, find_tty as find_tty
from ._unfinished import Unfinished as Unfinished

__all__ = ["Screen", "Tty", "Unfinished", "find_tty"]
