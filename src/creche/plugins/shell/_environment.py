"""What a command finds in its environment: what this program has, without its secrets, and nothing that pages or colours.

What is a secret is told by its name alone. A password within another value, such as that of ``DATABASE_URL``, is not
recognised.
"""

from collections.abc import Mapping
from types import MappingProxyType

PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "MANPAGER": "cat",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "TERM": "dumb",
    }
)
"""What keeps programs from waiting for a key and from colours."""

_SECRET_WORDS = frozenset({"KEY", "KEYS", "PASS", "PAT", "PWD", "TOKEN", "TOKENS"})
_SECRET_PARTS = ("APIKEY", "CREDENTIAL", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SSHPASS")
_HARMLESS = frozenset({"OLDPWD", "PWD"})


def is_secret(name: str) -> bool:
    """Say whether the value of a variable is a secret, by its name: ``OPENAI_API_KEY``, ``GH_TOKEN``, ``PGPASSWORD``."""
    upper = name.upper()
    if upper in _HARMLESS:
        return False
    return not _SECRET_WORDS.isdisjoint(upper.split("_")) or any(part in upper for part in _SECRET_PARTS)


def environment_from(parent: Mapping[str, str]) -> dict[str, str]:
    """Give the environment of commands that a parent's environment makes."""
    return {**{name: value for name, value in parent.items() if not is_secret(name)}, **PLAIN}
