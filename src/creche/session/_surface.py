"""The surface: the ordered records that the model's history is made of, and the messages they derive.

A record joins at the end, or takes the place of a range. Appending is O(1) and keeps the list of messages
that earlier requests hold views of; a replacement starts new lists.

Rule 1: the leading system prompt gives way only to another system prompt, alone.
Rule 2: a tool result takes the place only of one for the same call, from which nothing but its content differs.
Rule 3: an answer takes no other record's place. It is the record of an attempt, and attempts are counted.
"""

from collections.abc import Iterable

import attrs

from creche.errors import IllegalRecordError
from creche.messages import Message

from ._facts import AssistantSaid, Record, SystemSaid, ToolReturned, ToolsChanged, UserSaid
from ._shelf import Shelf, ShelfView


def derive_message(record: Record) -> Message | None:
    """Return what a surface record says to the model; ``None`` for an empty prompt or answer."""
    data = record.data
    if isinstance(data, AssistantSaid):
        return data.message if data.message.parts else None
    if isinstance(data, SystemSaid):
        return data.message if data.message.text else None
    return data.message if isinstance(data, (ToolReturned, UserSaid, ToolsChanged)) else None


@attrs.frozen(eq=False)
class SurfaceState:
    """A surface at one moment."""

    nodes: ShelfView[Record]
    messages: ShelfView[Message] = attrs.field(kw_only=True)
    system_nodes: tuple[Record, ...] = attrs.field(kw_only=True)
    generation: int = attrs.field(kw_only=True)


class Surface:
    """The surface of one log."""

    __slots__ = ("_messages", "_nodes", "generation", "system_nodes")

    def __init__(self, start: SurfaceState | None = None) -> None:
        self._nodes: Shelf[Record] = Shelf(None if start is None else start.nodes)
        self._messages: Shelf[Message] = Shelf(None if start is None else start.messages)
        self.generation = 0 if start is None else start.generation
        """How often something was replaced."""
        self.system_nodes: tuple[Record, ...] = () if start is None else start.system_nodes
        """The system prompts on the surface, in order."""

    def state(self) -> SurfaceState:
        """Return the surface as it is now; a surface made from it shares what is there. Copies nothing."""
        return SurfaceState(
            self._nodes.view(),
            messages=self._messages.view(),
            system_nodes=self.system_nodes,
            generation=self.generation,
        )

    @property
    def nodes(self) -> ShelfView[Record]:
        """The records, in the order in which the model sees them."""
        return self._nodes.view()

    @property
    def messages(self) -> ShelfView[Message]:
        """The messages they derive."""
        return self._messages.view()

    @property
    def history(self) -> object:
        """What `messages` is a view of; another one once something was replaced."""
        return self._messages

    def append(self, record: Record) -> None:
        """Put a record at the end."""
        message = derive_message(record)
        self._nodes._own.append(record)
        if isinstance(record.data, SystemSaid):
            self.system_nodes = (*self.system_nodes, record)
        if message is not None:
            self._messages._own.append(message)

    def shadowed(self, start: int, end: int) -> tuple[Record, ...]:
        """Return the records from one to another, both included, by their place on the surface.

        Raises:
          IllegalRecordError: One of them is not on the surface, or they are in the wrong order.
        """
        nodes = list(self._nodes.view())
        places = {node.seq: place for place, node in enumerate(nodes)}
        for seq in (start, end):
            if seq not in places:
                raise IllegalRecordError(f"record {seq} is not on the surface, so nothing can take its place")
        if places[start] > places[end]:
            raise IllegalRecordError(
                f"record {start} stands after record {end} on the surface; give the earlier one first"
            )
        return tuple(nodes[places[start] : places[end] + 1])

    def check_replacement(self, data: object, shadowed: tuple[Record, ...]) -> None:
        """Refuse what may not be replaced, or may not replace.

        Raises:
          IllegalRecordError: The rule at the head of this module that it breaks.
        """
        first = self._nodes.view()[0]
        alone = len(shadowed) == 1
        if shadowed[0] is first and isinstance(first.data, SystemSaid) and not (alone and isinstance(data, SystemSaid)):
            raise IllegalRecordError("the leading system prompt can be replaced only by a system prompt, alone")
        if isinstance(data, AssistantSaid):
            raise IllegalRecordError(
                "an answer is the record of an attempt, so it cannot take the place of another record"
            )
        if isinstance(data, ToolReturned):
            old = shadowed[0].data
            if not alone or not isinstance(old, ToolReturned):
                raise IllegalRecordError("a tool result can take the place of exactly one tool result")
            before, after = old.message, data.message
            same = (before.call_id, before.name, before.is_error, old.code)
            if (after.call_id, after.name, after.is_error, data.code) != same:
                raise IllegalRecordError("only the content of a tool result can be replaced")

    def replace(self, record: Record, shadowed: tuple[Record, ...]) -> None:
        """Put a record in the place of others; the lists start anew."""
        gone = {node.seq for node in shadowed}
        nodes: list[Record] = []
        for node in self._nodes.view():
            if node.seq == shadowed[0].seq:
                nodes.append(record)
            if node.seq not in gone:
                nodes.append(node)
        self.generation += 1
        self._fill(nodes)

    def _fill(self, nodes: Iterable[Record]) -> None:
        self._nodes, self._messages = Shelf(), Shelf()
        self.system_nodes = ()
        for node in nodes:
            self.append(node)
