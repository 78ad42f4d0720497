"""Opening a host: its options, what it is furnished with, and the order in which that comes and goes."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from creche._util import as_all, check_in_trio, open_hidden_nursery
from creche.agent import Budget
from creche.errors import UnsupportedCapabilityError
from creche.models import Model, ModelAlias, check_model_given
from creche.presets import Preset, mount_presets
from creche.prompt import Text
from creche.scope import Owner, Plugin, Registry, make_registrar, open_mounts
from creche.session import JsonlStore, MemoryStore, SessionStore

from ._furnish import furnish
from ._host import Host


@asynccontextmanager
async def open_host(
    *,
    model: Model | str | None = None,
    persona: Text | None = None,
    plugins: Iterable[Plugin] = (),
    presets: Iterable[Preset] = (),
    aliases: Mapping[str, Model | str] | None = None,
    store: SessionStore | str | os.PathLike[str] | None = None,
    prices: Mapping[str, object] | None = None,
    budget: Budget | None = None,
    identity: bool = True,
    persona_suffix: Text | None = None,
) -> AsyncIterator[Host]:
    """Open a host for the length of the block; leaving it ends every agent and plugin, and waits for them.

    Args:
      model: What agents ask that name no model: an adapter, ``"provider:model"``, or an alias.
      persona: Who agents are that say nothing else.
      plugins: What is mounted globally, in order, before the presets.
      presets: Compositions that agents can be opened under.
      aliases: Other names of models, without a colon, such as ``{"fast": "openai:gpt-5-mini"}``.
      store: Where logs are kept: a folder for JSONL files, or a store; in memory if absent.
      prices: What tokens cost. Not counted by this version, so it is refused.
      budget: Limits of every agent and everything below it.
      identity: Whether the section `harness:identity` is there.
      persona_suffix: What varies by machine, at the very end of the system prompt.

    Yields:
      The host. It cannot be used after the block. An error raised in the block comes out as itself.

    Raises:
      PluginError: A plugin did not start.
      ConfigError: The presets do not fit together; all problems at once.
      UnsupportedCapabilityError: ``prices`` were given.

    Example:
      A lead that can delegate, with logs in a folder::

          async with open_host(model=model, plugins=[delegation()], store="logs") as host:
              async with host.open_agent(AgentSpec("lead")) as lead:
                  print((await lead.ask("Summarise this folder.")).text)
    """
    check_in_trio("open_host()", "write async with portal.open(open_host(...))")
    if prices is not None:
        raise UnsupportedCapabilityError(
            "open_host(prices=...): costs are not counted by this version of creche; leave it out"
        )
    check_model_given(model, "open_host(model=)")
    cure = (
        "a function that makes one is called, as in delegation(), and anything else goes into Plugin(name, setup=[...])"
    )
    plugins = as_all(Plugin, plugins, "plugins=", cure)
    presets = as_all(Preset, presets, "presets=", "write Preset(name, ...)")
    async with open_mounts(Registry()) as mounts, open_hidden_nursery("the host") as nursery:
        registrar = make_registrar(mounts.registry, Owner("host"), None)
        furnish(registrar, persona, persona_suffix, identity=identity)
        for name, meant in (aliases or {}).items():
            registrar.add(ModelAlias(name, model=meant))
        for plugin in plugins:
            await mounts.mount(plugin)
        host = Host._create(
            mounts,
            nursery,
            registrar=registrar,
            store=_as_store(store),
            presets=await mount_presets(presets, mounts),
            model=model,
            budget=budget,
        )
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):  # it takes what the agents take
                await host._life.end_below()


def _as_store(store: SessionStore | str | os.PathLike[str] | None) -> SessionStore:
    if store is None:
        return MemoryStore()
    return JsonlStore(store) if isinstance(store, str | os.PathLike) else store
