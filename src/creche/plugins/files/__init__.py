"""Tools that read one folder: ``read``, ``list`` and ``grep``, as a plugin."""

from creche._util import publish

from ._tools import files as files

__all__ = ["files"]

publish(globals(), __name__)
