"""The two kinds of event, as typed classes, and the entries that hear them or stand around them.

A `Notification` tells that something happened: listeners are synchronous, hear it in order, root first,
and one that raises starves nobody. An `Operation` is about to happen: wrappers stand around it, root
outermost, and the value that comes back counts. Both are dispatched by exact class, at a scope key, and
reach the listeners visible from that key: hearing is the same look-up as seeing.
"""

import inspect
import types
import typing
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, get_args, get_origin

import attrs

from creche.errors import RegistryError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E", bound="Notification")
O = TypeVar("O", bound="Operation[object]")  # noqa: E741 - O as in operation
O_co = TypeVar("O_co", covariant=True)


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

    if TYPE_CHECKING:

        @classmethod
        def _signature(cls) -> tuple[Self, R_co]: ...


class Signed(Protocol[O_co, R_co]):
    """An operation, or its class, as type checkers see it: from one argument they learn its class and its result.

    A type variable cannot be bound to another, ``type[O]`` with ``O`` an ``Operation[R]``; a method that both
    the class and its instances have says the same. It exists for the checkers alone.
    """

    def _signature(self) -> tuple[O_co, R_co]: ...


class Next(Protocol[R]):
    """What a wrapper calls to go on inwards. It may be called again, to try once more, or not at all."""

    def __call__(self, changed: Operation[R] | None = None, /) -> Awaitable[R]:
        """Run what is inside, on the event as it came, or on another event of its very class."""
        ...


def _check_notification(_entry: object, _attribute: object, event_type: Any) -> None:
    if not _is_kind_of(event_type, Notification):
        raise RegistryError(
            f"{event_type!r} is not a class of Notification; write on(Event, listener), and around an Operation wrap(Event, wrapper)"
        )


def _check_synchronous(entry: "Listener[Any]", _attribute: object, hear: Any) -> None:
    if inspect.iscoroutinefunction(hear):
        raise RegistryError(
            f"the listener {hear!r} of {entry.event_type.__qualname__} is async, and listeners are synchronous; "
            "for what has to wait, let it send_nowait() the event into a memory channel that a task reads"
        )


def _check_operation(_entry: object, _attribute: object, event_type: Any) -> None:
    if not _is_kind_of(event_type, Operation):
        raise RegistryError(
            f"{event_type!r} is not a class of Operation; write wrap(Event, wrapper), and for a Notification on(Event, listener)"
        )
    result_type_of(event_type)


def _is_kind_of(event_type: object, base: type[object]) -> bool:
    return isinstance(event_type, type) and issubclass(event_type, base)


@attrs.frozen(eq=False)
class Listener(Generic[E]):
    """An entry: a function that hears one class of notification."""

    event_type: type[E] = attrs.field(validator=_check_notification)
    """The exact class it hears."""
    hear: Callable[[E], None] = attrs.field(validator=_check_synchronous, kw_only=True)
    """Contract: synchronous; called once a dispatch; what it raises becomes a `Fault` at its owner."""
    here_only: bool = attrs.field(default=False, kw_only=True)
    """Hear only what is dispatched at exactly the scope of the registration, nothing from below it."""
    entry_shape: ClassVar[Literal["anonymous"]] = "anonymous"


@attrs.frozen(eq=False)
class Wrapper(Generic[O]):
    """An entry: a function that stands around one class of operation."""

    event_type: type[O] = attrs.field(validator=_check_operation)
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


_result_types: dict[type[Operation[object]], type | types.UnionType] = {}


def result_type_of(operation: type[Operation[object]]) -> type | types.UnionType:
    """Return what `isinstance` can check of the result that an operation declares in ``Operation[...]``.

    The origin stands for a generic, and `object` for what cannot be checked at run time.

    Raises:
      TypeError: The class does not say what comes back.
    """
    known = _result_types.get(operation)
    if known is None:
        known = _result_types[operation] = _checkable(_declared_result(operation))
    return known


def _declared_result(operation: type[Operation[object]]) -> object:
    for base in operation.__mro__:
        for declared in vars(base).get("__orig_bases__", ()):
            if get_origin(declared) is Operation:
                return get_args(declared)[0]
    raise TypeError(f"{operation.__qualname__} does not say what comes back: derive it from Operation[Result]")


def _checkable(declared: object) -> type | types.UnionType:
    origin = get_origin(declared)
    if origin is types.UnionType or origin is typing.Union:
        checkable, *others = [_checkable(each) for each in get_args(declared)]
        for each in others:
            checkable = checkable | each
        return checkable
    candidate = origin or declared
    try:
        isinstance(None, candidate)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the question is whether it may
    except TypeError:
        return object
    return typing.cast("type", candidate)
