"""For tests, ours and users': recorded events and requests, invariants of logs and hosts, cancellation everywhere.

And a mock model provider, for what talks HTTP; the fake models, which need none, are in `creche.models`. A virtual clock is trio's own `trio.testing.MockClock`.
"""

from creche._util import publish

from ._canceller import Canceller as Canceller, cancel_at_every_step as cancel_at_every_step
from ._check_code_runtime import check_code_runtime as check_code_runtime
from ._check_model import check_model as check_model
from ._events import record_events as record_events
from ._invariants import (
    assert_no_leaks as assert_no_leaks,
    check_log as check_log,
    check_requests as check_requests,
    system_texts as system_texts,
)
from ._mock_items import (
    Cut as Cut,
    Garbage as Garbage,
    MockAnswer as MockAnswer,
    MockItem as MockItem,
    MockRequest as MockRequest,
    Page as Page,
    Pause as Pause,
    Raw as Raw,
    Silent as Silent,
    Status as Status,
    Think as Think,
    Unended as Unended,
    Until as Until,
    cut as cut,
    garbage as garbage,
    page as page,
    pause as pause,
    raw as raw,
    silent as silent,
    status as status,
    think as think,
    unended as unended,
    until as until,
)
from ._mock_provider import MockProvider as MockProvider, open_mock_provider as open_mock_provider
from ._recording import RecordingModel as RecordingModel, SentRequest as SentRequest

__all__ = [
    "Canceller",
    "Cut",
    "Garbage",
    "MockAnswer",
    "MockItem",
    "MockProvider",
    "MockRequest",
    "Page",
    "Pause",
    "Raw",
    "RecordingModel",
    "SentRequest",
    "Silent",
    "Status",
    "Think",
    "Unended",
    "Until",
    "assert_no_leaks",
    "cancel_at_every_step",
    "check_code_runtime",
    "check_log",
    "check_model",
    "check_requests",
    "cut",
    "garbage",
    "open_mock_provider",
    "page",
    "pause",
    "raw",
    "record_events",
    "silent",
    "status",
    "system_texts",
    "think",
    "unended",
    "until",
]

publish(globals(), __name__)
