"""Tools for the files of one folder, as a plugin: four that read, and on request two that write."""

from creche._util import publish

from ._tools import files as files

__all__ = ["files"]

publish(globals(), __name__)
