"""Who sees, who owns, who hears: scope keys, the shared registry, registrars, events and plugins.

A key's parent link decides what its scope sees and who hears it. Registrations are inherited down the
chain, the nearest scope wins a name; a dispatch at a key reaches the listeners visible from it, which are
its own and its ancestors'. Siblings share nothing and hear nothing of each other.
"""

from creche._util import publish

from ._events import Fault as Fault
from ._events import Listener as Listener
from ._events import Next as Next
from ._events import Notification as Notification
from ._events import Operation as Operation
from ._events import Wrapper as Wrapper
from ._events import result_type_of as result_type_of
from ._keys import ScopeKey as ScopeKey
from ._keys import ScopeParentBinding as ScopeParentBinding
from ._keys import bind_scope_parent as bind_scope_parent
from ._keys import scope_chain_of as scope_chain_of
from ._keys import scope_parent_of as scope_parent_of
from ._plugins import Mounted as Mounted
from ._plugins import Mounts as Mounts
from ._plugins import Plugin as Plugin
from ._plugins import SetupItem as SetupItem
from ._plugins import open_mounts as open_mounts
from ._registrar import Registrar as Registrar
from ._registrar import make_registrar as make_registrar
from ._registration import AnonymousEntry as AnonymousEntry
from ._registration import Entry as Entry
from ._registration import NamedEntry as NamedEntry
from ._registration import Owner as Owner
from ._registration import Registration as Registration
from ._registration import place_name as place_name
from ._registry import Registry as Registry
from ._registry import Service as Service
from ._views import Derivation as Derivation
from ._views import Level as Level

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
