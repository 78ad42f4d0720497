"""Where the command line keeps logs, approvals and what was typed: the user's state folder, never the folder that is worked on."""

import hashlib
import os
import sys
from pathlib import Path


def sessions_folder() -> Path:
    """Return the folder for session logs."""
    return _state_folder() / "sessions"


def approvals_file(folder: str) -> Path:
    """Return the file for what is always allowed in a folder; an absolute path without symlinks."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return Path(os.path.realpath(_state_folder() / "approvals")) / f"{name}.json"


def history_file() -> Path:
    """Return the file for what is typed into chats."""
    return _state_folder() / "chat-history"


def _state_folder() -> Path:
    """Return the folder for all that is kept.

    ``$CRECHE_STATE`` if set, else ``creche`` in the system's place for state: ``$XDG_STATE_HOME`` or
    ``~/.local/state``, ``~/Library/Application Support`` on macOS, ``%LOCALAPPDATA%`` on Windows.
    """
    if own := os.environ.get("CRECHE_STATE"):
        return Path(own)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "creche"
