"""The two kinds of event, as typed classes.

A `Notification` tells that something happened: listeners are synchronous, hear it in order, root first,
and one that raises starves nobody. An `Operation` is about to happen: wrappers stand around it, root
outermost, and the value that comes back counts. Both are dispatched by exact class, at a scope key, and
reach the listeners visible from that key: hearing is the same look-up as seeing.
"""

import functools
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_args, get_origin

import attrs

R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E", bound="Notification")
O = TypeVar("O", bound="Operation[object]")  # noqa: E741 - O as in operation


class Notification:
    """Base of events that tell what happened; subclasses are attrs-frozen values with a wire name."""

    __slots__ = ()
    wire_name: ClassVar[str]
    """The stable name of the event outside the process, such as ``"agent/turn-ended"``."""


class Operation(Generic[R_co]):
    """Base of events that wrappers stand around: ``class Brew(Operation[Tea])`` comes back with a ``Tea``."""

    __slots__ = ()
    wire_name: ClassVar[str]
    """The stable name of the event outside the process, such as ``"agent/pre-step"``."""


class Next(Protocol[R_co]):
    """What a wrapper calls to go on inwards."""

    def __call__(self, changed: Any = ..., /) -> Awaitable[R_co]:  # the engine is untyped inside; `Registrar.wrap` is not
        """Run what is inside, on the event as it came, or on another event of its class."""
        ...


@attrs.frozen(eq=False)
class Listener(Generic[E]):
    """An entry: a function that hears one class of notification."""

    event_type: type[E]
    """The exact class it hears."""
    hear: Callable[[E], None] = attrs.field(kw_only=True)
    """Contract: synchronous; called once a dispatch; what it raises becomes a `Fault` at its owner."""
    here_only: bool = attrs.field(default=False, kw_only=True)
    """Hear only what is dispatched at exactly the scope of the registration, nothing from below it."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class Wrapper(Generic[O]):
    """An entry: a function that stands around one class of operation."""

    event_type: type[O]
    """The exact class it stands around."""
    wrap: Callable[[O, Next[Any]], Awaitable[object]] = attrs.field(kw_only=True)
    """Contract: returns a value of the operation's result; not calling ``next`` refuses; it may wait."""
    here_only: bool = attrs.field(default=False, kw_only=True)
    """Stand only around what is dispatched at exactly the scope of the registration."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class Fault(Notification):
    """A listener, a plugin body or a background thread failed; dispatched at its owner's scope.

    A fault in a listener of faults goes to logging alone.
    """

    wire_name: ClassVar[str] = "creche/fault"
    owner: str
    """Who registered what failed."""
    what: str = attrs.field(kw_only=True)
    """What it was doing, such as ``"hearing agent/turn-ended"``."""
    error: BaseException | None = attrs.field(default=None, kw_only=True)
    """What it raised, if it raised."""


@functools.cache
def result_type_of(operation: type[Operation[object]]) -> type | types.UnionType:
    """Return the class that an operation class comes back with, as declared in ``Operation[...]``."""
    for base in operation.__mro__:
        for declared in getattr(base, "__orig_bases__", ()):
            if get_origin(declared) is Operation:
                (result,) = get_args(declared)
                return typing.cast("type | types.UnionType", get_origin(result) or result) if not isinstance(
                    result, types.UnionType
                ) else result
    raise TypeError(f"{operation.__qualname__} does not say what comes back: derive it from Operation[Result]")
