"""A tool that runs commands in one folder, ``bash``, as a plugin."""

from creche._util import publish

from ._tools import shell as shell

__all__ = ["shell"]

publish(globals(), __name__)
