"""The log: an append-only record of what happened, from which any request can be rebuilt.

`SessionLog` holds the records and the history the model sees; `Journal` and `SessionStore` are the seam to
where they are kept.
"""

from creche._util import publish

from ._codec import (
    FORMAT_LINE as FORMAT_LINE,
    FORMAT_VERSION as FORMAT_VERSION,
    SessionRecord as SessionRecord,
    decode_format as decode_format,
    decode_line as decode_line,
    encode_header as encode_header,
    encode_record as encode_record,
)
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
from ._jsonl import JsonlStore as JsonlStore
from ._load import load_sessions as load_sessions
from ._log import SessionLog as SessionLog
from ._order import KIND_OF as KIND_OF, KINDS as KINDS, Kind as Kind, Phase as Phase
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
from ._state import CONTEXT_SOURCE as CONTEXT_SOURCE, SnapshotState as SnapshotState
from ._store import (
    Journal as Journal,
    MemoryJournal as MemoryJournal,
    MemoryStore as MemoryStore,
    RecordAppended as RecordAppended,
    SessionStore as SessionStore,
    flush_closing as flush_closing,
)

__all__ = [
    "CONTEXT_SOURCE",
    "FORMAT_LINE",
    "FORMAT_VERSION",
    "KINDS",
    "KIND_OF",
    "NO_CONTEXT",
    "AssistantSaid",
    "AttemptFailed",
    "Fact",
    "HeaderReason",
    "HeaderWritten",
    "Journal",
    "JsonlStore",
    "Kind",
    "Lane",
    "MemoryJournal",
    "MemoryStore",
    "MessageAccepted",
    "MessagesClaimed",
    "MessagesDropped",
    "Outcome",
    "Phase",
    "Record",
    "RecordAppended",
    "RetryPlanned",
    "RouteNoted",
    "SessionForked",
    "SessionHeader",
    "SessionLog",
    "SessionRecord",
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
    "decode_format",
    "decode_line",
    "encode_header",
    "encode_record",
    "flush_closing",
    "fold_surface",
    "load_sessions",
    "project_header",
    "project_route",
    "project_snapshot",
    "project_system_prompt",
    "project_tools",
    "rebuild_request",
]

publish(globals(), __name__)
