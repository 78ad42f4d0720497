"""Who sees, who owns, who hears: scope keys, the shared registry, registrars, events and plugins.

A key's parent link decides what its scope sees and who hears it. Registrations are inherited down the
chain, the nearest scope wins a name; a dispatch at a key reaches the listeners visible from it, which are
its own and its ancestors'. Siblings share nothing and hear nothing of each other.
"""

from creche._util import publish

from ._entries import AnonymousEntry as AnonymousEntry, Entry as Entry, NamedEntry as NamedEntry, Service as Service
from ._events import (
    Fault as Fault,
    Listener as Listener,
    Next as Next,
    Notification as Notification,
    Operation as Operation,
    Wrapper as Wrapper,
    result_type_of as result_type_of,
)
from ._keys import (
    ScopeKey as ScopeKey,
    ScopeParentBinding as ScopeParentBinding,
    bind_scope_parent as bind_scope_parent,
    scope_chain_of as scope_chain_of,
    scope_parent_of as scope_parent_of,
)
from ._mounts import Mounts as Mounts, open_mounts as open_mounts
from ._plugins import Mounted as Mounted, Plugin as Plugin, SetupItem as SetupItem
from ._registrar import Registrar as Registrar, make_registrar as make_registrar
from ._registration import Owner as Owner, Registration as Registration, place_name as place_name
from ._registry import Registry as Registry
from ._views import Derivation as Derivation, Level as Level

__all__ = [
    "AnonymousEntry",
    "Derivation",
    "Entry",
    "Fault",
    "Level",
    "Listener",
    "Mounted",
    "Mounts",
    "NamedEntry",
    "Next",
    "Notification",
    "Operation",
    "Owner",
    "Plugin",
    "Registrar",
    "Registration",
    "Registry",
    "ScopeKey",
    "ScopeParentBinding",
    "Service",
    "SetupItem",
    "Wrapper",
    "bind_scope_parent",
    "make_registrar",
    "open_mounts",
    "place_name",
    "result_type_of",
    "scope_chain_of",
    "scope_parent_of",
]

publish(globals(), __name__)
