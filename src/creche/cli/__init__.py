"""The ``creche`` command."""

import sys

from creche._util import publish


def main() -> None:
    """Run the command line and exit with its code: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated."""
    try:
        from ._app import USAGE, app
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        sys.stderr.write(f"creche: the command line needs {error.name!r}; run: pip install 'creche[cli]'\n")
        sys.exit(2)
    try:
        sys.exit(app(exit_on_error=False, print_error=True))
    except Exception as error:
        if type(error).__module__.startswith("cyclopts"):
            sys.exit(USAGE)
        raise
    except KeyboardInterrupt:
        sys.stderr.write("creche: interrupted\n")
        sys.exit(130)


__all__ = ["main"]

publish(globals(), __name__)
