"""The kinds of record and their legal order.

Rule 1: every kind, its class of fact, where it may stand and what it opens or closes is in this table and
nowhere else; `docs/reference/records.md` is drawn from it.
Rule 2: phases. ``idle``: no turn is open. ``turn``: a turn is open and no step. ``step``: a step is open and
the model has not answered. ``answered``: the model has answered, its calls are being made.
Rule 3: in ``answered`` a result belongs to a call of this answer that has none yet, a call record to one
that has neither; the step cannot end before every call has its result. A call that is part of another one stands
between that one's two records, and a request for approval and its decision between those of its call.
Rule 4: what replaces something on the surface may stand wherever a turn is open.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import attrs

from ._facts import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantSaid,
    AttemptFailed,
    CodeCalled,
    CodeReturned,
    Fact,
    HeaderWritten,
    MessageAccepted,
    MessagesClaimed,
    MessagesDropped,
    RetryPlanned,
    RouteNoted,
    SessionForked,
    StepEnded,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    SystemSaid,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    UserSaid,
)

Phase = Literal["idle", "turn", "step", "answered"]

IDLE: frozenset[Phase] = frozenset({"idle"})
TURN: frozenset[Phase] = frozenset({"turn"})
STEP: frozenset[Phase] = frozenset({"step"})
ANSWERED: frozenset[Phase] = frozenset({"answered"})
ANYWHERE: frozenset[Phase] = frozenset({"idle", "turn", "step", "answered"})
IN_A_TURN: frozenset[Phase] = ANYWHERE - IDLE


@attrs.frozen
class Kind:
    """One kind of record."""

    name: str
    """Such as ``"tool/result"``."""
    fact: type[Fact] = attrs.field(kw_only=True)
    """The class of its data."""
    where: frozenset[Phase] = attrs.field(kw_only=True)
    """The phases in which it may stand."""
    then: Phase | None = attrs.field(default=None, kw_only=True)
    """The phase it leads to; ``None`` stays."""
    surface: bool = attrs.field(default=False, kw_only=True)
    """Whether it is part of the history that the model sees."""


_KINDS = (
    Kind("turn/start", fact=TurnStarted, where=IDLE, then="turn"),
    Kind("turn/end", fact=TurnEnded, where=TURN, then="idle"),
    Kind("step/start", fact=StepStarted, where=TURN, then="step"),
    Kind("step/end", fact=StepEnded, where=STEP | ANSWERED, then="turn"),
    Kind("inbox/accepted", fact=MessageAccepted, where=ANYWHERE),
    Kind("inbox/claimed", fact=MessagesClaimed, where=TURN),
    Kind("inbox/dropped", fact=MessagesDropped, where=ANYWHERE),
    Kind("system/message", fact=SystemSaid, where=STEP, surface=True),
    Kind("user/message", fact=UserSaid, where=STEP, surface=True),
    Kind("request/header", fact=HeaderWritten, where=STEP),
    Kind("request/context", fact=RouteNoted, where=STEP),
    Kind("tools/changed", fact=ToolsChanged, where=STEP, surface=True),
    Kind("assistant/message", fact=AssistantSaid, where=STEP, then="answered", surface=True),
    Kind("assistant/attempt", fact=AttemptFailed, where=STEP),
    Kind("model/retry", fact=RetryPlanned, where=STEP),
    Kind("tool/call", fact=ToolCalled, where=ANSWERED),
    Kind("tool/result", fact=ToolReturned, where=ANSWERED, surface=True),
    Kind("tool/code-call", fact=CodeCalled, where=ANSWERED),
    Kind("tool/code-result", fact=CodeReturned, where=ANSWERED),
    Kind("approval/requested", fact=ApprovalRequested, where=ANSWERED),
    Kind("approval/decided", fact=ApprovalDecided, where=ANSWERED),
    Kind("subagent/start", fact=SubagentStarted, where=ANYWHERE),
    Kind("subagent/end", fact=SubagentEnded, where=ANYWHERE),
    Kind("session/fork", fact=SessionForked, where=IDLE),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _KINDS})
"""Every kind by its name."""

KIND_OF: Mapping[type, Kind] = MappingProxyType({kind.fact: kind for kind in _KINDS})
"""Every kind by the class of its data."""
