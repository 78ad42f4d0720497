"""What ends the work of a command besides its result, as a sentence and an exit code."""

from collections.abc import Callable
from typing import TypeVar

import attrs

from creche.errors import CrecheError, InternalError

from ._ending import FAILED, USAGE, WrongUsage
from ._output import Output
from ._signals import code_and_word, ended_as_interrupted
from ._users import UserCodeFailed

T = TypeVar("T")


@attrs.frozen
class Stopped:
    """Why there is no result."""

    sentence: str
    """What is to be said of it, without a full stop."""
    code: int = attrs.field(kw_only=True)
    """The exit code."""
    by_signal: bool = attrs.field(default=False, kw_only=True)
    """Whether somebody wanted it so: Ctrl-C, SIGTERM, or the end of the terminal."""


def run_until_stopped(work: Callable[[], T], output: Output | None = None) -> T | Stopped:
    """Do the work of a command; return its result, or what has ended it. What its output has left is written then.

    After a signal the process ends soon, whatever takes what is written.
    """
    signals: list[int] = []
    try:
        with ended_as_interrupted(signals):
            return work()
    except KeyboardInterrupt:
        code, word = code_and_word(signals[0] if signals else None)
        return Stopped(word, code=code, by_signal=True)
    except WrongUsage as wrong:
        return Stopped(str(wrong), code=USAGE)
    except (CrecheError, InternalError, UserCodeFailed) as error:
        return Stopped(str(error), code=FAILED)
    finally:
        if output is not None:
            output.drain()
