"""What makes a public object public: its path, its finality, and who may construct it."""

import typing
from abc import ABCMeta
from collections.abc import Mapping
from types import FunctionType
from typing import NoReturn, TypeVar

__all__ = ["NoPublicConstructor", "final", "publish"]

T = TypeVar("T")


def publish(namespace: Mapping[str, object], module: str) -> None:
    """Give what a door exports the door's own path, so that a traceback or a pickle names the public one.

    Called as the last line of a door: ``publish(globals(), __name__)``. It moves the public classes and
    functions that the room's private modules define, and nothing that only passes through: what another
    room defines keeps that room's path. Methods, values and type aliases keep theirs too.

    A quoted annotation on a field is looked up in the module the class names, which is the door after
    this. So quote only what the door exports.

    Args:
      namespace: The door's globals.
      module: The door's name.
    """
    private = f"{module}._"
    for name, value in namespace.items():
        if name.startswith("_") or not isinstance(value, (type, FunctionType)):
            continue
        if value.__module__.startswith(private):
            value.__module__ = module


class NoPublicConstructor(ABCMeta):
    """Metaclass of handles: calling the class is a `TypeError`, whoever owns it calls ``_create``.

    A handle made by hand would have no nursery behind it. Always used under `final`::

        @final
        @attrs.define(eq=False)
        class Agent(metaclass=NoPublicConstructor):
            name: str


        agent = Agent._create("lead")

    It is an `abc.ABCMeta`, so that a handle may also implement an abstract class.
    """

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        """Refuse."""
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} has no public constructor; call what opens or returns one"
        )

    def _create(cls: type[T], *args: object, **kwargs: object) -> T:
        """Construct an instance, for the room that defines the class."""
        instance: T = type.__call__(cls, *args, **kwargs)
        return instance


if not typing.TYPE_CHECKING:

    def final(cls: type[T]) -> type[T]:
        """Mark a class as final, for type checkers and at run time: subclassing it is a `TypeError`.

        Apply it outermost. A decorator outside of it that builds the class anew, as attrs does for
        slots, would leave the message naming a class that nobody has.

        Args:
          cls: The class; it comes back as itself.
        """

        def refuse(subclass: type[object], **kwargs: object) -> NoReturn:
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__} is final, {subclass.__qualname__} cannot subclass it; hold one instead"
            )

        cls.__init_subclass__ = classmethod(refuse)
        return typing.final(cls)
else:
    from typing import final
