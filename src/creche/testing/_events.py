"""Hearing events in a test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from creche.scope import Notification, Registrar

E = TypeVar("E", bound=Notification)


@contextmanager
def record_events(registrar: Registrar, *event_types: type[E]) -> Iterator[list[E]]:
    """Record the notifications of some classes that reach a registrar's scope, for the length of the block.

    Args:
      registrar: Where to listen: what is dispatched there or below is heard.
      event_types: The exact classes.

    Yields:
      A list that grows as they come, in the order of dispatch. It does not grow after the block.

    Raises:
      TypeError: No class is given.
      RegistryError: One of them is no class of notifications.

    Example:
      What an agent and its subagents log::

          with record_events(host.registrar.at(lead.scope), RecordAppended) as heard:
              await lead.ask("Go.")
          assert heard[0].record.kind == "inbox/accepted"
    """
    if not event_types:
        raise TypeError("record_events() without a class of event hears nothing; give it at least one")
    heard: list[E] = []
    with ExitStack() as registrations:
        for event_type in event_types:
            registrations.enter_context(registrar.on(event_type, heard.append))
        yield heard
