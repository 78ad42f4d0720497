"""The live view: the tree of agents on a terminal, below what the lead says."""

from ._screen import Screen as Screen
from ._style import ASCII as ASCII, UNICODE as UNICODE, plain as plain
from ._tree import draw as draw
from ._tty import Tty as Tty, find_tty as find_tty
from ._unfinished import Unfinished as Unfinished

__all__ = ["ASCII", "UNICODE", "Screen", "Tty", "Unfinished", "draw", "find_tty", "plain"]
