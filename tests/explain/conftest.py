"""One registry, three scopes below each other and one beside them, and a short way to have one explained."""

from types import SimpleNamespace

import pytest

from creche.explain import explain_prompt
from creche.prompt import AssembleContext
from creche.scope import Owner, Registry, ScopeKey, bind_scope_parent, make_registrar
from creche.tools import tool_provider


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def scopes():
    """An organisation, a team in it, and two agents of the team."""
    org, team, ada, ben = [ScopeKey(label) for label in ("org", "team", "ada", "ben")]
    for key, parent in ((org, None), (team, org), (ada, team), (ben, team)):
        bind_scope_parent(key, parent)
    return SimpleNamespace(org=org, team=team, ada=ada, ben=ben)


@pytest.fixture
def pens(registry, scopes):
    """A registrar for each scope, and one for the global layer; the owners are called as the scopes are."""
    made = {
        label: make_registrar(registry, Owner(label), key)
        for label, key in (("host", None), *[(key.label, key) for key in vars(scopes).values()])
    }
    made["host"].add(tool_provider(registry))
    return SimpleNamespace(**made)


@pytest.fixture
def explain(registry):
    async def explained(scope=None):
        return await explain_prompt(registry, AssembleContext(scope))

    return explained
