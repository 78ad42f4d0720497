"""Tools that read one folder: ``read``, ``list`` and ``grep``, as a plugin."""

from ._tools import files as files

__all__ = ["files"]

files.__module__ = __name__
