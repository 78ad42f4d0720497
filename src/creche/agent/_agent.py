"""The handle of an agent: what it is, what can be said to it, and what its loop and its composer use."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from creche._util import NoPublicConstructor, as_one, check_in_trio, final
from creche.errors import AgentError, TurnCancelled
from creche.messages import UserMessage
from creche.models import ModelOptions, Route, Settings, Usage
from creche.scope import Registry, ScopeKey
from creche.session import Journal, MemoryJournal, Record, RecordAppended, SessionLog
from creche.tools import output_shape

from ._asking import Asking, begin_wait, end_wait, turns_above
from ._budget import Allowance, DepthLimit
from ._composer import Composer
from ._inbox import Delivery, Inbox, Said
from ._spec import AgentSpec, Reply
from ._stream import ReplyStream
from ._turn import NO_USAGE, Turn, run_turn
from ._watch import WATCH_CAPACITY, Watch, tell_watches


@final
@attrs.define(eq=False, kw_only=True)
class Agent(metaclass=NoPublicConstructor):
    """Something with a scope, a session, an inbox and a loop. Opened by a host, ends with its block.

    `send`, `steer`, `inject` and `cancel` are synchronous: what they do is in the log when they return, and has no
    effect before the next checkpoint. So what is sent and cancelled without one between them never starts a turn.
    A listener of records cannot call them while it hears one: the log refuses, and nothing has happened.
    """

    spec: AgentSpec = attrs.field(kw_only=False)
    """What it was made from."""
    path: str
    """Such as ``"lead/research-1"``; the same from run to run."""
    scope: ScopeKey
    """Its own scope: what is registered here, this agent and those below it see."""
    session: SessionLog
    """Its log."""
    registry: Registry
    """The shared registry."""
    composer: Composer
    """What makes its subagents."""
    journal: Journal
    """Where the logs of its tree are written."""
    route: Route
    """The adapter and model it asks."""
    settings: Settings
    """What its requests propose."""
    parent: "Agent | None"
    """The agent that started it."""
    preset: str | None
    """The preset it is composed under."""
    limit: DepthLimit
    """How deep its tree may go."""
    allowances: tuple[Allowance, ...] = ()
    """What its requests are taken out of: its own and those of the agents above it."""
    grants: tuple[str, ...] = ()
    """Tools it sees and the agent that started it does not, by grant of its preset."""
    child_counts: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    """How many children were named after each provider."""
    depth: int = attrs.field(init=False)
    """How many agents are above it."""

    _inbox: Inbox = attrs.field(init=False)
    _turn: Turn | None = attrs.field(default=None, init=False)
    # What its last request left: the surface's generation, and whether there was one in this run of the loop.
    _generation: int = attrs.field(init=False)
    _has_asked: bool = attrs.field(default=False, init=False)
    _tool_counts: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    _children: "dict[str, Agent] | None" = attrs.field(default=None, init=False)
    # The turn of its parent in which it was started, and what those below it cost that have ended.
    _started_in: Turn | None = attrs.field(default=None, init=False)
    _tree_usage: Usage = attrs.field(default=NO_USAGE, init=False)
    _watches: tuple[Watch, ...] = attrs.field(default=(), init=False)
    _stop: trio.CancelScope | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _changed: trio.Event | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.depth = 0 if self.parent is None else self.parent.depth + 1
        self._inbox = Inbox(self.session)
        self._generation = self.session.generation
        write = None if isinstance(self.journal, MemoryJournal) else self.journal.write
        self.session.attach(publish=self._publish, write=write)

    # ---------------------------------------------------------------- what it is

    @property
    def id(self) -> str:
        """Its id, which is its session's."""
        return self.session.id

    @property
    def name(self) -> str:
        """The last segment of its path."""
        return self.spec.name

    @property
    def options(self) -> ModelOptions:
        """Its model options."""
        return self.settings.options

    @property
    def cwd(self) -> str | None:
        """Its working directory, its parent's if it has none of its own."""
        return self.session.header.cwd

    @property
    def children(self) -> tuple["Agent", ...]:
        """The live agents that it started."""
        return () if self._children is None else tuple(self._children.values())

    @property
    def is_busy(self) -> bool:
        """Whether a turn is open."""
        return self._turn is not None

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._inbox.closed

    @property
    def usage(self) -> Usage:
        """What its requests and everything below it cost so far, what is still at work included."""
        total = NO_USAGE
        agents: list[Agent] = [self]
        for agent in agents:  # which grows: a tree may be deeper than Python's stack
            total += agent.session.usage + agent._tree_usage
            agents.extend(agent.children)
        return total

    # ---------------------------------------------------------------- saying something to it

    def send(self, message: Said, *, source: str = "user", output: type[object] | None = None) -> Delivery:
        """Say something that gets a turn of its own. Synchronous: it is in the log on return.

        Args:
          message: What to say.
          source: Who says it; a `UserMessage` has its own.
          output: A class for a structured answer, see `ask`.

        Returns:
          The message on its way; ``await delivery.reply()`` gives the answer.

        Raises:
          AgentClosedError: It does not run any more.
          AgentError: There is nothing in the message, or nobody who says it.
          TypeError: The class has no JSON form.
        """
        shape = None if output is None else output_shape(output)
        return self._inbox.accept(self, message, "next-turn", source=source, wakes=True, shape=shape)

    def steer(self, message: Said, *, source: str = "user") -> Delivery:
        """Say something that joins the next step of the open turn, and gives it one more if there would be none.

        Starts a turn if none is open. Otherwise as `send`; its reply is that of the turn it joins.
        """
        return self._inbox.accept(self, message, "next-step", source=source, wakes=True)

    def inject(self, message: Said, *, source: str = "user") -> Delivery:
        """Leave a note that joins the next request, whenever that is; it never starts a turn.

        In an open turn it joins the next step, like what `steer` says. Otherwise as `send`.
        """
        return self._inbox.accept(self, message, "next-step", source=source, wakes=False)

    def _deliver(self, message: UserMessage) -> None:
        """Let a message of a tool join the next step; one that comes when the agent is closing has nobody to read it."""
        if not self._inbox.closed:
            self._inbox.accept(self, message, "next-step", source=message.source, wakes=False)

    async def ask(self, message: Said, *, output: type[object] | None = None) -> Reply:
        """Say something and wait for the reply.

        Cancelling it withdraws the message if it is not claimed yet; otherwise it cancels the turn that
        claimed it and waits until that has settled.

        Args:
          message: What to say.
          output: An attrs class, a dataclass or a TypedDict: the model is held to its JSON Schema for this turn, and the reply's
            ``output`` is a value of it. An answer that does not fit is sent back once, with every problem.

        Raises:
          ModelError: The model failed, and retries did not help; or its answer does not fit ``output``.
          UnsupportedCapabilityError: The model cannot be held to a schema.
          TypeError: The class has no JSON form.
          TurnCancelled: Somebody else cancelled the turn, or dropped the message.
          TurnRefused: A wrapper refused the step.
          LimitReachedError: A budget stopped it.
          PromptError: The prompt could not be assembled.
          StoreError: The log could not be made durable, so no request was made.
          InternalError: A bug, its cause; the agent lives.
          AgentClosedError: It does not run any more.
          AgentError: It was asked from within its own turn, or by an agent that it waits for; either would wait
            for itself.
        """
        check_in_trio(f"agent {self.path!r}", "write await portal.run(agent.ask, ...)")
        async with Asking(self, message, output) as delivery:
            await delivery._wait()
        return delivery.reply_nowait()

    @asynccontextmanager
    async def stream(self, message: Said, *, output: type[object] | None = None) -> AsyncIterator[ReplyStream]:
        """Say something and read the answer as it comes.

        Leaving the block before the end withdraws the message or cancels its turn, like cancelling `ask`.

        Args:
          message: What to say.
          output: A class for a structured answer, see `ask`.

        Yields:
          The deltas; when the iterator has ended, ``.reply`` is the whole.

        Raises:
          AgentClosedError: It does not run any more.
          AgentError: As `ask`. What else `ask` raises, the iterator does.

        Example:
          Print an answer as it comes::

              async with agent.stream("What is in this folder?") as deltas:
                  async for delta in deltas:
                      if isinstance(delta, TextDelta):
                          print(delta.text, end="")
        """
        check_in_trio(f"agent {self.path!r}", "write async with portal.stream(agent.stream(...))")
        async with Asking(self, message, output) as delivery:
            yield ReplyStream._create(delivery)

    def cancel(self, cause: str = "user", *, keep_inbox: bool = False) -> None:
        """Cancel the open turn and drop what is accepted and not claimed. Synchronous; a turn's first cause counts.

        Who waits gets `TurnCancelled`. The turn ends at its next checkpoint, and then the log has the cause.

        Args:
          cause: Goes into the log and to who waits, as `TurnCancelled.cause`.
          keep_inbox: Leave unclaimed messages where they are; they are worked on next. As it needs no record, a
            listener of records may do this.
        """
        check_in_trio(f"agent {self.path!r}", "write await portal.call(agent.cancel)")
        as_one(str, cause, "cancel", "the cause is a text for the log")
        if not keep_inbox:
            self._drop(self._inbox.waiting(), cause)
        self._cancel_turn(cause)

    async def wait_idle(self) -> None:
        """Wait until no turn is open and nothing waits for one; at least one checkpoint.

        Raises:
          AgentError: It was called from within the agent's own turn, or by an agent that it waits for; either would
            wait for itself.
        """
        turns = begin_wait(self, until_idle=True)
        try:
            await trio.lowlevel.checkpoint()
            while self.is_busy or (self._inbox.has_work and not self._inbox.closed):
                await self._change()
        finally:
            end_wait(self, turns)

    @contextmanager
    def watch(self, *, subtree: bool = False, after: int | None = None) -> Iterator[Watch]:
        """Read the records of the agent as they are appended, bounded; see `Watch` about a slow reader.

        Args:
          subtree: Also those of every agent below it, whatever preset they are composed under.
          after: Begin with the agent's own records after this number, which are in the log already. Those of
            agents below begin now in any case.
        """
        records = self.session.records()
        past = () if after is None else records[max(after + 1, 0) :]
        last = len(records) - 1 if after is None else after
        watch = Watch._create(self.path, WATCH_CAPACITY + len(past), subtree=subtree, after=last)
        for record in past:
            watch._tell(RecordAppended(self.path, record=record))
        if self._is_over:
            watch._close()
        self._watches = (*self._watches, watch)
        try:
            yield watch
        finally:
            self._watches = tuple([each for each in self._watches if each is not watch])
            watch._close()

    async def aclose(self) -> None:
        """End an agent that was started with ``host.start_agent``, and wait until it has ended.

        Raises:
          AgentError: It was opened with a block, and ends with that.
        """
        if self._stop is not None:
            self._stop.cancel()
        elif not self._is_over:
            raise AgentError(f"agent {self.path!r} was opened with a block and ends with it; leave the block")
        await trio.lowlevel.checkpoint()
        while not self._is_over:
            await self._change()

    # ---------------------------------------------------------------- for the loop and the composer

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run turns until `end_run`, or until it is cancelled."""
        while not self._inbox.closed:
            if not self._inbox.has_work:
                self._tell_change()
                await self._inbox.wait_for_work()
                continue
            # A turn that would end at its first checkpoint is not begun; the message is dropped by `close`.
            await trio.lowlevel.checkpoint_if_cancelled()
            await run_turn(self)

    def end_run(self) -> None:
        """Take nothing more, cancel the open turn, and let `run` return. Synchronous.

        An idle agent ends without a cancellation, which saves a third of what opening and closing one costs.
        """
        self._inbox.close()
        self._cancel_turn("closed")

    @trio.lowlevel.enable_ki_protection
    async def run_until_read(self) -> None:
        """Run turns until nothing waits for one, then take nothing more; for one-shot children.

        The last look at the inbox and the end of acceptance are one synchronous stretch, so no message is
        accepted and never read.
        """
        while self._inbox.has_work:
            await trio.lowlevel.checkpoint_if_cancelled()
            await run_turn(self)
        self._inbox.closed = True

    def add_child(self, child: "Agent") -> None:
        """Note a live child; called in the task that starts it, so that the turn it works for is known."""
        if self._turn is not None and self._turn in turns_above.get():
            child._started_in = self._turn
        if self._children is None:
            self._children = {}
        self._children[child.name] = child

    def remove_child(self, child: "Agent", usage: Usage) -> None:
        """Note that a child has ended, and what it and everything below it cost."""
        assert self._children is not None, "it was added"
        del self._children[child.name]
        self._tree_usage += usage
        if child._started_in is not None:
            child._started_in.tree += usage
        self._tell_change()

    async def wait_childless(self) -> None:
        """Take nothing more, no child either; cancel the children and wait until they have ended."""
        self._inbox.closed = True
        while self._children:
            for child in self.children:
                assert child._stop is not None, "the composer names what ends a child before it adds it"
                child._stop.cancel()
            await self._change()

    def stop_with(self, scope: trio.CancelScope) -> None:
        """Name the cancel scope that ends it. For a child this comes before `add_child`."""
        self._stop = scope

    def close(self) -> None:
        """Take nothing more and settle whose messages nobody has read. Synchronous; nothing comes to its log after it."""
        self._inbox.closed = True
        self._inbox.drop(self._inbox.waiting(), "closed", self._inbox.closed_error())
        # Its log is complete. Who keeps that does not keep the agent, and the agent is in no reference cycle.
        self.session.attach(publish=None, write=None)

    def end(self) -> None:
        """Tell who waits for its end. Synchronous; the last thing the composer does with it."""
        self._is_over = True
        for watch in self._watches:
            watch._close()
        self._tell_change()

    # ---------------------------------------------------------------- inside

    def _cancel_turn(self, cause: str) -> None:
        if self._turn is not None:
            self._turn.cancel(cause)

    def _drop(self, deliveries: list[Delivery], cause: str) -> None:
        error = TurnCancelled(f"a message to agent {self.path!r} was dropped unread ({cause})", cause=cause)
        self._inbox.drop(deliveries, cause, error)
        self._tell_change()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _tell_change(self) -> None:
        """Wake who waits for the agent to be idle, childless or over, to look again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _publish(self, record: Record) -> None:
        if self.registry.hears(RecordAppended):
            self.registry.emit(RecordAppended(self.path, record=record), at=self.scope)
        if self._watches or self.parent is not None:
            tell_watches(self, record)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "busy" if self.is_busy else "idle"
        return f"<Agent {self.path!r} {state}>"
