"""One registry and the host's pen for every test of the room."""

import pytest

from creche.scope import Owner, Registry, make_registrar


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def pen(registry):
    """A registrar at the global layer, of an owner named ``host``."""
    return make_registrar(registry, Owner("host"), None)


@pytest.fixture
def make_pen(registry):
    """Return a registrar at a scope for a new owner."""

    def make(owner, scope=None):
        return make_registrar(registry, Owner(owner, scope), scope)

    return make
