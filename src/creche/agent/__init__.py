"""Agents: the handle, the inbox, the loop that runs turns, and the request each step makes.

An agent reaches its host only through the `Composer` protocol, which the host implements.
"""

from creche._util import publish

from ._agent import Agent as Agent
from ._asking import forget_turns as forget_turns
from ._budget import (
    DEFAULT_DEPTH as DEFAULT_DEPTH,
    Allowance as Allowance,
    Budget as Budget,
    DepthLimit as DepthLimit,
    allow as allow,
)
from ._composer import Composer as Composer
from ._events import (
    Again as Again,
    BuildRequest as BuildRequest,
    DeltaStreamed as DeltaStreamed,
    Enter as Enter,
    GiveUp as GiveUp,
    LimiterAcquired as LimiterAcquired,
    LimiterWaited as LimiterWaited,
    PreStep as PreStep,
    RecoverRequest as RecoverRequest,
    Reject as Reject,
    TurnStopping as TurnStopping,
)
from ._inbox import Delivery as Delivery, Said as Said
from ._spec import AgentSpec as AgentSpec, Reply as Reply, expand_setup as expand_setup
from ._stream import ReplyStream as ReplyStream, StreamRestarted as StreamRestarted
from ._turn import make_durable as make_durable, run_turn as run_turn
from ._watch import Watch as Watch

__all__ = [
    "DEFAULT_DEPTH",
    "Again",
    "Agent",
    "AgentSpec",
    "Allowance",
    "Budget",
    "BuildRequest",
    "Composer",
    "Delivery",
    "DeltaStreamed",
    "DepthLimit",
    "Enter",
    "GiveUp",
    "LimiterAcquired",
    "LimiterWaited",
    "PreStep",
    "RecoverRequest",
    "Reject",
    "Reply",
    "ReplyStream",
    "Said",
    "StreamRestarted",
    "TurnStopping",
    "Watch",
    "allow",
    "expand_setup",
    "forget_turns",
    "make_durable",
    "run_turn",
]

publish(globals(), __name__)
