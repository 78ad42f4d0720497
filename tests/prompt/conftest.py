"""One registry, the host's pen, and short ways to assemble and render."""

from types import SimpleNamespace

import pytest

from creche.errors import PromptError
from creche.prompt import AssembleContext, assemble, render_context_sections, render_prompt
from creche.scope import Owner, Registry, ScopeKey, bind_scope_parent, make_registrar


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


@pytest.fixture
def scopes():
    """A preset's scope, and those of two agents under it."""
    preset, ada, ben = ScopeKey("preset"), ScopeKey("ada"), ScopeKey("ben")
    bind_scope_parent(ada, preset)
    bind_scope_parent(ben, preset)
    return SimpleNamespace(preset=preset, ada=ada, ben=ben)


@pytest.fixture
def see(registry):
    """Return the assembly of a scope."""

    async def assembled(scope=None):
        return await assemble(registry, AssembleContext(scope))

    return assembled


@pytest.fixture
def refusal(see):
    """Return why the prompt of a scope cannot be assembled."""

    async def told(scope=None):
        with pytest.raises(PromptError) as caught:
            await see(scope)
        return str(caught.value)

    return told


@pytest.fixture
def prompt(see):
    """Return the rendered prompt of a scope."""

    async def rendered(scope=None):
        return render_prompt(await see(scope))

    return rendered


@pytest.fixture
def contexts(see):
    """Return the rendered runtime contexts of a scope, by name."""

    async def rendered(scope=None):
        return {piece.name: piece.text for piece in render_context_sections(await see(scope))}

    return rendered
