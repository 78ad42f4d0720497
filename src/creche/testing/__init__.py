"""For tests, ours and users': recorded events and requests, invariants of logs and hosts, cancellation everywhere.

The fake models are in `creche.models`; a virtual clock is trio's own `trio.testing.MockClock`.
"""

from creche._util import publish

from ._canceller import Canceller as Canceller, cancel_at_every_step as cancel_at_every_step
from ._events import record_events as record_events
from ._invariants import (
    assert_no_leaks as assert_no_leaks,
    check_log as check_log,
    check_requests as check_requests,
    system_texts as system_texts,
)
from ._recording import RecordingModel as RecordingModel, SentRequest as SentRequest

__all__ = [
    "Canceller",
    "RecordingModel",
    "SentRequest",
    "assert_no_leaks",
    "cancel_at_every_step",
    "check_log",
    "check_requests",
    "record_events",
    "system_texts",
]

publish(globals(), __name__)
