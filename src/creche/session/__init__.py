"""The log: an append-only record of what happened, from which any request can be rebuilt.

`SessionLog` holds the records and the history the model sees; `Journal` and `SessionStore` are the seam to
where they are kept."""

from creche._util import publish

from ._facts import (
    AssistantSaid as AssistantSaid,
    AttemptFailed as AttemptFailed,
    Fact as Fact,
    HeaderReason as HeaderReason,
    HeaderWritten as HeaderWritten,
    Lane as Lane,
    MessageAccepted as MessageAccepted,
    MessagesClaimed as MessagesClaimed,
    MessagesDropped as MessagesDropped,
    Outcome as Outcome,
    Record as Record,
    RetryPlanned as RetryPlanned,
    RouteNoted as RouteNoted,
    SessionForked as SessionForked,
    SessionHeader as SessionHeader,
    StepEnded as StepEnded,
    StepStarted as StepStarted,
    SubagentEnded as SubagentEnded,
    SubagentStarted as SubagentStarted,
    SystemSaid as SystemSaid,
    ToolCalled as ToolCalled,
    ToolReturned as ToolReturned,
    ToolsChanged as ToolsChanged,
    TurnEnded as TurnEnded,
    TurnReason as TurnReason,
    TurnStarted as TurnStarted,
    UserSaid as UserSaid,
)
from ._log import CONTEXT_SOURCE as CONTEXT_SOURCE, SessionLog as SessionLog, SnapshotState as SnapshotState
from ._order import KINDS as KINDS, KIND_OF as KIND_OF, Kind as Kind, Phase as Phase
from ._projection import (
    NO_CONTEXT as NO_CONTEXT,
    Update as Update,
    project_header as project_header,
    project_route as project_route,
    project_snapshot as project_snapshot,
    project_system_prompt as project_system_prompt,
    project_tools as project_tools,
)
from ._rebuild import fold_surface as fold_surface, rebuild_request as rebuild_request
from ._shelf import Shelf as Shelf, ShelfView as ShelfView
from ._store import (
    Journal as Journal,
    MemoryJournal as MemoryJournal,
    MemoryStore as MemoryStore,
    RecordAppended as RecordAppended,
    SessionStore as SessionStore,
    flush_closing as flush_closing,
)

__all__ = [
    "AssistantSaid",
    "AttemptFailed",
    "CONTEXT_SOURCE",
    "Fact",
    "HeaderReason",
    "HeaderWritten",
    "Journal",
    "KINDS",
    "KIND_OF",
    "Kind",
    "Lane",
    "MemoryJournal",
    "MemoryStore",
    "MessageAccepted",
    "MessagesClaimed",
    "MessagesDropped",
    "NO_CONTEXT",
    "Outcome",
    "Phase",
    "Record",
    "RecordAppended",
    "RetryPlanned",
    "RouteNoted",
    "SessionForked",
    "SessionHeader",
    "SessionLog",
    "SessionStore",
    "Shelf",
    "ShelfView",
    "SnapshotState",
    "StepEnded",
    "StepStarted",
    "SubagentEnded",
    "SubagentStarted",
    "SystemSaid",
    "ToolCalled",
    "ToolReturned",
    "ToolsChanged",
    "TurnEnded",
    "TurnReason",
    "TurnStarted",
    "Update",
    "UserSaid",
    "flush_closing",
    "fold_surface",
    "project_header",
    "project_route",
    "project_snapshot",
    "project_system_prompt",
    "project_tools",
    "rebuild_request",
]

publish(globals(), __name__)
