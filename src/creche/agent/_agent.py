"""The handle of an agent."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

import outcome
import trio

from creche._util import NoPublicConstructor, final
from creche.errors import AgentClosedError, AgentError, TurnCancelled, UnsupportedCapabilityError
from creche.messages import Part, UserMessage
from creche.models import ModelOptions, Route, Settings, Usage
from creche.scope import Registry, ScopeKey
from creche.session import Journal, Lane, Record, RecordAppended, SessionLog

from ._budget import DepthLimit
from ._composer import Composer
from ._inbox import Delivery, Inbox
from ._spec import AgentSpec, Reply
from ._stream import WATCH_CAPACITY, ReplyStream, Watch
from ._turn import Turn, run_turn, turns_above

Said = str | UserMessage | Iterable[Part]
"""What can be said to an agent: a text, parts, or a whole message."""


@final
class Agent(metaclass=NoPublicConstructor):
    """Something with a scope, a session, an inbox and a loop. Opened by a host, ends with its block.

    `send`, `steer`, `inject` and `cancel` are synchronous and take effect at the agent's next checkpoint.
    """

    __slots__ = (
        "_children",
        "_closed",
        "_idle",
        "_stop",
        "_turn",
        "_wake",
        "_watches",
        "child_counts",
        "composer",
        "depth",
        "end_cause",
        "generation",
        "grants",
        "has_asked",
        "inbox",
        "journal",
        "limit",
        "name",
        "parent",
        "path",
        "preset",
        "registry",
        "route",
        "scope",
        "session",
        "settings",
        "spec",
        "tool_counts",
        "tree_usage",
    )

    def __init__(
        self,
        spec: AgentSpec,
        *,
        path: str,
        scope: ScopeKey,
        session: SessionLog,
        registry: Registry,
        composer: Composer,
        journal: Journal,
        route: Route,
        settings: Settings,
        parent: "Agent | None",
        preset: str | None,
        limit: DepthLimit,
        grants: tuple[str, ...] = (),
    ) -> None:
        self.spec = spec
        """What it was made from."""
        self.name = spec.name
        """The last segment of its path."""
        self.path = path
        """Such as ``"lead/research-1"``; the same from run to run."""
        self.scope = scope
        """Its own scope: what is registered here, this agent and those below it see."""
        self.session = session
        """Its log."""
        self.registry = registry
        """The shared registry."""
        self.composer = composer
        """What makes its subagents."""
        self.journal = journal
        """Where the logs of its tree are written."""
        self.route = route
        """The adapter and model it asks."""
        self.settings = settings
        """What its requests propose."""
        self.parent = parent
        """The agent that started it."""
        self.preset = preset
        """The preset it is composed under."""
        self.depth = 0 if parent is None else parent.depth + 1
        """How many agents are above it."""
        self.limit = limit
        """How deep its tree may go."""
        self.grants = grants
        """Tools it sees and the agent that started it does not, by grant of its preset."""
        self.inbox = Inbox(session)
        """What it has accepted and not yet claimed."""
        self.generation = session.generation
        """The surface's generation at its last request."""
        self.has_asked = False
        """Whether it has made a request since it was opened."""
        self.tool_counts: dict[str, int] = {}
        """How often it has called each tool."""
        self.child_counts: dict[str, int] = {}
        """How many children were named after each provider."""
        self.tree_usage = Usage()
        """What the agents below it cost."""
        self.end_cause = "closed" if parent is None else "parent"
        """The cause of a turn that ends because its surroundings were cancelled."""
        self._turn: Turn | None = None
        self._wake: trio.Event | None = None
        self._idle: trio.Event | None = None
        self._closed = False
        self._stop: trio.CancelScope | None = None
        self._watches: list[tuple[Watch, bool]] | None = None
        self._children: dict[str, Agent] | None = None
        session.attach(publish=self._publish, write=journal.write)

    # ---------------------------------------------------------------- what it is

    @property
    def id(self) -> str:
        """Its id, which is its session's."""
        return self.session.id

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
        return tuple(self._children.values()) if self._children else ()

    @property
    def is_busy(self) -> bool:
        """Whether a turn is open."""
        return self._turn is not None

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def usage(self) -> Usage:
        """What it and everything below it cost so far."""
        return self.session.usage + self.tree_usage

    # ---------------------------------------------------------------- saying something to it

    def send(self, message: Said, *, source: str = "user") -> Delivery:
        """Say something that gets a turn of its own. Synchronous: it is in the log on return.

        Returns:
          The message on its way; ``await delivery.reply()`` gives the answer.

        Raises:
          AgentClosedError: It does not run any more.
        """
        return self._accept(message, "next-turn", source, wakes=True)

    def steer(self, message: Said, *, source: str = "user") -> Delivery:
        """Say something that joins the next step of the open turn; starts a turn if none is open. Synchronous."""
        return self._accept(message, "next-step", source, wakes=True)

    def inject(self, message: Said, *, source: str = "user") -> Delivery:
        """Leave a note that joins the next request whenever that is; it never starts a turn. Synchronous."""
        return self._accept(message, "next-step", source, wakes=False)

    async def ask(self, message: Said, *, output: type[object] | None = None) -> Reply:
        """Say something and wait for the reply.

        Cancelling it withdraws the message if it is not claimed yet; otherwise it cancels the turn that
        claimed it and waits until that has settled.

        Args:
          message: What to say.
          output: A class for a structured answer. Not offered by this version.

        Raises:
          ModelError: The model failed, and retries did not help.
          TurnCancelled: Somebody else cancelled the turn.
          TurnRefused: A wrapper refused the step.
          LimitReachedError: A budget stopped it.
          PromptError: The prompt could not be assembled.
          InternalError: A bug; the agent lives.
          AgentClosedError: It does not run any more.
          AgentError: It was asked from within its own turn, which would wait for itself.
        """
        if output is not None:
            raise UnsupportedCapabilityError("ask(output=...) is not offered by this version of creche; ask for text")
        self._refuse_itself()
        delivery = self.send(message)
        try:
            return await delivery.reply()
        except BaseException:
            await self._give_up(delivery)
            raise

    @asynccontextmanager
    async def stream(self, message: Said) -> AsyncIterator[ReplyStream]:
        """Say something and read the answer as it comes.

        Leaving the block before the end cancels the turn, or withdraws the message, like `ask`.

        Yields:
          The deltas; when the iterator has ended, ``.reply`` is the whole.
        """
        self._refuse_itself()
        stream = ReplyStream._create()
        delivery = self.send(message)
        stream.follow(delivery)
        try:
            yield stream
        finally:
            await self._give_up(delivery)

    def cancel(self, cause: str = "user", *, keep_inbox: bool = False) -> None:
        """Cancel the open turn and drop what is accepted and not claimed. Synchronous; the first cause counts.

        Args:
          cause: Goes into the log and to who waits, as `TurnCancelled.cause`.
          keep_inbox: Leave unclaimed messages where they are; they are worked on next.
        """
        if not keep_inbox:
            self._drop(self.inbox.waiting(), cause)
        self._cancel_turn(cause)

    async def wait_idle(self) -> None:
        """Wait until no turn is open and nothing waits for one; at least one checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.is_busy or (self._has_work() and not self._closed):
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    @contextmanager
    def watch(self, *, subtree: bool = False, after: int | None = None) -> Iterator[Watch]:
        """Read the records of the agent as they are appended, bounded.

        A reader that falls a thousand records behind is cut: its iterator raises `AgentError` with the
        number to go on from.

        Args:
          subtree: Also those of every agent below it, whatever preset they are composed under.
          after: Begin with the agent's own records after this number, which are in the log already.
        """
        past = [record for record in self.session.records() if record.seq > after] if after is not None else []
        watch = Watch._create(WATCH_CAPACITY + len(past))
        for record in past:
            watch.tell(self.path, record)
        self._watches = [*(self._watches or ()), (watch, subtree)]
        try:
            yield watch
        finally:
            self._watches = [each for each in self._watches if each[0] is not watch]
            watch.close()

    async def aclose(self) -> None:
        """End an agent that was started with ``host.start_agent``, and wait until it has ended.

        Raises:
          AgentError: It was opened with a block, and ends with that.
        """
        if self._stop is None:
            if self._closed:
                await trio.lowlevel.checkpoint()
                return
            raise AgentError(f"agent {self.path!r} was opened with a block and ends with it")
        self._stop.cancel()
        while not self._closed:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    # ---------------------------------------------------------------- for the loop and the composer

    async def run(self) -> None:
        """Run turns for as long as the agent is open."""
        while True:
            while not self._has_work():
                self._tell_idle()
                self._wake = trio.Event()
                await self._wake.wait()
            await run_turn(self)

    async def run_until_read(self) -> None:
        """Run turns until nothing waits for one, then take nothing more; for one-shot children.

        The last look at the inbox and the end of acceptance are one synchronous stretch, so no message is
        accepted and never read.
        """
        while self._has_work():
            await run_turn(self)
        self._closed = True

    def begin_turn(self) -> Turn:
        """Note that a turn opens."""
        self._turn = Turn(self.session.turn + 1)
        return self._turn

    def end_turn(self, turn: Turn) -> None:
        """Note that it has ended."""
        self._turn = None
        self._tell_idle()

    def add_child(self, child: "Agent") -> None:
        """Note a live child."""
        if self._children is None:
            self._children = {}
        self._children[child.name] = child

    def remove_child(self, child: "Agent", usage: Usage) -> None:
        """Note that a child has ended, and what it and everything below it cost."""
        if self._children is not None:
            self._children.pop(child.name, None)
        self.tree_usage += usage
        if self._turn is not None:
            self._turn.tree += usage
        self._tell_idle()

    async def wait_childless(self) -> None:
        """Cancel the children and wait until they have ended."""
        while self._children:
            for child in self.children:
                child.stop()
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    def stop_with(self, scope: trio.CancelScope) -> None:
        """Name the cancel scope that ends it."""
        self._stop = scope

    def stop(self) -> None:
        """Cancel the scope that it runs in, if it has one."""
        if self._stop is not None:
            self._stop.cancel()

    def close(self) -> None:
        """Take nothing more and settle who waits. Synchronous; the last thing the composer does with it."""
        waiting = self.inbox.waiting()
        self._closed = True
        if waiting:
            self.inbox.drop(waiting, "closed")
            for delivery in waiting:
                delivery.settle(outcome.Error(self._closed_error()))
        for watch, _ in self._watches or ():
            watch.close()
        self._tell_idle()

    # ---------------------------------------------------------------- inside

    def _accept(self, message: Said, lane: Lane, source: str, *, wakes: bool) -> Delivery:
        if self._closed:
            raise self._closed_error()
        said = message if isinstance(message, UserMessage) else UserMessage(message, source=source)
        if not said.parts or not said.source:
            raise AgentError("a message needs at least one part and a source")
        delivery = self.inbox.accept(said, lane, wakes=wakes)
        if wakes and self._wake is not None:
            self._wake.set()
        return delivery

    def _closed_error(self) -> AgentClosedError:
        return AgentClosedError(f"agent {self.path!r} does not run any more")

    def _has_work(self) -> bool:
        inbox = self.inbox
        return bool(inbox.next_turn) or any([delivery.wakes for delivery in inbox.next_step])

    def _refuse_itself(self) -> None:
        if self in turns_above.get():
            raise AgentError(
                f"agent {self.path!r} was asked from within its own turn, which would wait for itself; "
                "use steer() or send(), or ask a subagent"
            )

    async def _give_up(self, delivery: Delivery) -> None:
        """Withdraw a message that is not claimed, else cancel its turn and wait until that has settled."""
        if delivery.result is not None:
            return
        if not delivery.claimed:
            self._drop([delivery], "withdrawn")
            return
        self._cancel_turn("user")
        with trio.CancelScope(shield=True):
            await delivery.wait()

    def _cancel_turn(self, cause: str) -> None:
        turn = self._turn
        if turn is not None and turn.cause is None:
            turn.cause = cause
            turn.scope.cancel()

    def _drop(self, deliveries: list[Delivery], cause: str) -> None:
        self.inbox.drop(deliveries, cause)
        for delivery in deliveries:
            error = TurnCancelled(f"a message to agent {self.path!r} was dropped unread ({cause})", cause=cause)
            delivery.settle(outcome.Error(error))
        if not self._has_work():
            self._tell_idle()

    def _tell_idle(self) -> None:
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    def _publish(self, record: Record) -> None:
        if self.registry.hears(RecordAppended):
            self.registry.emit(RecordAppended(self.path, record=record), at=self.scope)
        agent: Agent | None = self
        while agent is not None:
            if agent._watches:
                for watch, subtree in agent._watches:
                    if subtree or agent is self:
                        watch.tell(self.path, record)
            agent = agent.parent

    def __repr__(self) -> str:
        state = "closed" if self._closed else "busy" if self.is_busy else "idle"
        return f"<Agent {self.path!r} {state}>"
