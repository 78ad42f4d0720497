"""The ``creche`` command."""

import os
import signal
import sys

from creche._util import publish

_PACKAGES = ("cyclopts", "rich", "prompt_toolkit")
"""What the extra `cli` brings."""


def main() -> None:
    """Run the command line and exit with its code: 0 done, 1 failed, 2 wrong usage, 129 hung up, 130 interrupted, 143 terminated."""
    try:
        _run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # before anything is imported once more
        from ._ending import INTERRUPTED, complain
        from ._signals import end_soon

        end_soon(None)
        sys.exit(complain("interrupted", INTERRUPTED))


def _run() -> None:
    from ._ending import USAGE, complain

    _forget_nonsense()
    try:
        from ._app import app

        sys.exit(app(exit_on_error=False, print_error=True))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        sys.exit(complain(f"the command line needs {error.name!r}; run: pip install 'creche[cli]'", USAGE))
    except Exception as error:
        if type(error).__module__.startswith("cyclopts"):
            sys.exit(USAGE)
        raise


_MOST_DIGITS = 5


def _forget_nonsense() -> None:
    """Forget a size of the terminal that is none: what writes the help takes any digits for a number, and ends with it."""
    for name in ("COLUMNS", "LINES"):
        told = os.environ.get(name, "")
        if not told.isdecimal() or len(told) > _MOST_DIGITS:
            os.environ.pop(name, None)


__all__ = ["main"]

publish(globals(), __name__)
