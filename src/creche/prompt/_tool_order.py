"""The tools of an assembly in order: by name, or as the nearest `ToolOrder` says."""

from collections.abc import Mapping

from creche.errors import PromptError
from creche.messages import ToolSchema
from creche.scope import Registration, ScopeKey, scope_chain_of

from ._entries import UNLISTED_TOOLS, ToolOrder, ToolSchemas
from ._sources import Source

_KEPT_ORDERS = 8


def order_for(
    offered: tuple[ToolSchemas, ...], nearest: Registration | None, scope: ScopeKey | None
) -> ToolOrder | None:
    """Return the order that holds: the nearest, unless the tools are others than those it was declared for."""
    if nearest is None:
        return None
    chain = scope_chain_of(scope)
    for schemas in offered:
        below = schemas.orders_from
        if below is not None and below in chain and nearest.scope not in chain[: chain.index(below) + 1]:
            return None
    order = nearest.entry
    assert isinstance(order, ToolOrder), "the table holds one kind"
    return order


def in_order(
    offered: tuple[ToolSchemas, ...], providers: tuple[Source, ...], order: ToolOrder | None
) -> tuple[ToolSchema, ...]:
    """Return the tools in order: the same tuple for as long as the providers give the same and the order stands.

    So the request's head stays one value. What is kept lives with the schemas of the nearest provider, which
    are what one agent has for itself if anything is, and goes with them.
    """
    if not offered:
        return _put_in_order({}, (), order)
    kept = offered[-1]._orders
    others = offered[:-1]
    found = kept.get(order)
    if found is not None and found[0] == others:
        return found[1]
    ordered = _put_in_order(_by_name(offered, providers), offered, order)
    if len(kept) >= _KEPT_ORDERS:
        kept.clear()
    kept[order] = (others, ordered)
    return ordered


def _by_name(offered: tuple[ToolSchemas, ...], providers: tuple[Source, ...]) -> dict[str, ToolSchema]:
    by_name: dict[str, ToolSchema] = {}
    owners: dict[str, str] = {}
    for schemas, provider in zip(offered, providers, strict=True):
        owner = provider.owner
        for schema in schemas.schemas:
            name = schema.name
            if name == UNLISTED_TOOLS:
                raise PromptError(
                    f"{owner!r} offers a tool named {name!r}, which is reserved for tool orders; rename it"
                )
            if name in by_name:
                raise PromptError(f"tool {name!r} is offered by {owners[name]!r} and by {owner!r}; rename one of them")
            by_name[name] = schema
            owners[name] = owner
    return by_name


def _put_in_order(
    by_name: Mapping[str, ToolSchema], offered: tuple[ToolSchemas, ...], order: ToolOrder | None
) -> tuple[ToolSchema, ...]:
    if order is None:
        return tuple([by_name[name] for name in sorted(by_name)])
    known = by_name.keys() | {name for schemas in offered for name in schemas.known_names}
    unknown = [name for name in order.names if name != UNLISTED_TOOLS and name not in known]
    if unknown:
        raise PromptError(
            f"tool order lists unknown tools {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known)) or '(none)'}"
        )
    names: list[str] = []
    for name in order.names:
        if name == UNLISTED_TOOLS:
            names += sorted(by_name.keys() - set(order.names))
        elif name in by_name:
            names.append(name)
    return tuple([by_name[name] for name in names])
