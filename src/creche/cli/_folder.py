"""The folder that a command works in: looked at before anything is opened or sent."""

import os

from ._ending import WrongUsage


def check_folder(folder: str) -> str:
    """Return the absolute path of a folder that can be worked in.

    Raises:
      WrongUsage: It cannot be read.
    """
    try:
        os.scandir(folder).close()
        return os.path.abspath(folder)  # which fails if the working directory is gone
    except OSError as error:
        problem = error.strerror
    except ValueError as error:
        problem = str(error)
    raise WrongUsage(f"cannot work in {folder!r}: {problem}")
