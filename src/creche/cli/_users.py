"""Code of the user's, which may do anything: what it writes is kept from the result, what it raises becomes a sentence."""

import atexit
import contextlib
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO, cast

import outcome
import trio

from creche._util import leaves_of, without_addresses
from creche.errors import CrecheError, InternalError

from ._ending import WrongUsage

MOST_SAID = 5
"""Errors of a group that are told."""
MOST_SHOWN = 2000
"""Characters of an error that are told."""
_PLUMBING = (
    os.path.join(Path(__file__).parent.parent, ""),
    *[os.path.join(*each.__path__, "") for each in (importlib, outcome, trio)],
)
"""Folders of creche, and of what it calls the user's code through."""
_BETWEEN = (*_PLUMBING, contextlib.__file__, "<")
"""How the files begin whose lines say nothing of what the user wrote."""
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = (*_PLUMBING, *[os.path.join(sysconfig.get_path(name), "") for name in _LIBRARIES])


class UserCodeFailed(Exception):  # noqa: N818 - raised as a statement about what the user wrote
    """The user's own code raised something; the message is a sentence for who wrote it."""


# ---------------------------------------------------------------- what it raises


@contextmanager
def users_code(what: str, *, is_host: bool = False) -> Iterator[None]:
    """Let code of the user's run for the length of the block, and say in a sentence what it raised, whatever that is.

    Args:
      what: What the sentence begins with, such as ``"team:app failed"``.
      is_host: Whether a host of ours is in it, whose own errors are told in their own words.

    Raises:
      WrongUsage: The block raised it, outside of the user's code.
      KeyboardInterrupt: Somebody wanted it so; also if it came in a group.
      UserCodeFailed: It raised something else.
    """
    try:
        yield
    except WrongUsage:
        raise
    except BaseException as error:
        leaves = leaves_of(error)  # of a nursery of the user's only what it raised is of interest
        if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
            raise KeyboardInterrupt from None
        if is_host and all(isinstance(leaf, CrecheError | InternalError) for leaf in leaves):
            raise UserCodeFailed("; ".join(map(_text, leaves))) from error
        raise UserCodeFailed(f"{what}: {_said(leaves)}") from error


def _said(errors: Sequence[BaseException]) -> str:
    """Return what was raised, and where."""
    more = [f"and {len(errors) - MOST_SAID} more"] if len(errors) > MOST_SAID else []
    return "; ".join([*[_one_said(error) for error in errors[:MOST_SAID]], *more])


def _one_said(error: BaseException) -> str:
    text, where = _text(error), _where(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def _text(error: BaseException) -> str:
    try:
        text = without_addresses(str(error))
        return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    except (Exception, SystemExit):  # noqa: BLE001 - whatever a stranger's class does when it is asked for its text
        return "its text cannot be read"


def _where(error: BaseException) -> str:
    """Return the innermost line of the user's own, or else of any code that is not ours."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    others = [each for each in frames if not each[0].startswith(_BETWEEN)]
    theirs = [each for each in others if not each[0].startswith(_INSTALLED)]
    found = (theirs or others)[-1:]
    return "".join([f" ({os.path.basename(file)}, line {line})" for file, line in found])


# ---------------------------------------------------------------- what it writes


@contextmanager
def kept_from_stdout() -> Iterator[None]:
    """Let all that is written to stdout go to stderr for the length of the block, and again when the process ends.

    Also what is written past Python, by children for example. Whatever the block does to stdout and stderr, they can be
    written to afterwards.
    """
    out, err = sys.stdout, sys.stderr
    out.flush()
    kept = os.dup(1)
    _turn_stdout_away()
    try:
        with redirect_stdout(err):
            yield
    finally:
        out = _usable(out, 1)  # it is flushed: what it holds is the block's
        _turn_back(kept)
        sys.stdout, sys.stderr = out, _usable(err, 2)
        atexit.unregister(_turn_stdout_away)
        atexit.register(_turn_stdout_away)  # the last one that is registered runs before the user's


def _turn_back(kept: int) -> None:
    try:
        os.dup2(kept, 1)
        os.close(kept)
    except OSError:  # the block has closed all there is; that there is no result is said when it is written
        with suppress(OSError):  # this one, too
            os.close(1)


def _turn_stdout_away() -> None:
    if sys.__stderr__ is not None:
        with suppress(OSError):  # it was closed since
            os.dup2(2, 1)
            return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _usable(stream: TextIO, descriptor: int) -> TextIO:
    """Flush a stream; if it was closed, return another one: Python's own leave their descriptors open."""
    if cast("TextIO | None", stream) is None:  # there was none when the process was started
        return stream
    try:
        stream.flush()
    except ValueError:
        return open(descriptor, "w", encoding=stream.encoding, errors="backslashreplace", closefd=False)
    except OSError:  # nobody reads it, which is said when the result is written
        pass
    return stream
