"""What it costs to encode the request of a step, for a session that grows: both wires, one JSON line each.

    python tests/bench/wire.py [STEPS]

Each step adds an answer with a call and its result, and encodes the whole request as the adapters do.
"""

import json
import sys
import time
from collections.abc import Callable

from creche.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, ToolSchema, UserMessage
from creche.models import ModelRequest, RequestHead, Settings
from creche.models.adapters import AnthropicModel, OpenAIModel
from creche.session import (
    AssistantSaid,
    SessionHeader,
    SessionLog,
    StepEnded,
    StepStarted,
    SystemSaid,
    ToolReturned,
    TurnStarted,
    UserSaid,
)

TOOLS = [ToolSchema(f"tool{number}", description="A tool.", parameters={"type": "object"}) for number in range(10)]


def micros_a_step(encode: Callable[[ModelRequest], object], steps: int) -> float:
    """Return the processor time of encoding one request, over a turn of so many steps, in microseconds."""
    log = SessionLog(SessionHeader("s", path="a", created=0.0))
    head = RequestHead(Settings("p", model="m"), tools=TOOLS)
    log.append(TurnStarted())
    log.append(StepStarted())
    log.append(SystemSaid(SystemMessage("You are a helpful assistant. " * 100)))
    log.append(UserSaid(UserMessage("Go.")))
    taken = 0.0
    for number in range(steps):
        request = ModelRequest(head, messages=log.derive_messages(), history=log.history)
        begun = time.process_time()
        encode(request)
        taken += time.process_time() - begun
        call = ToolCall(f"call_{number}", name="tool1", arguments='{"path": "a.txt"}')
        log.append(AssistantSaid(AssistantMessage([call])))
        log.append(ToolReturned(ToolMessage(call.id, name=call.name, parts="some text " * 20)))
        log.append(StepEnded())
        log.append(StepStarted())
    return taken / steps * 1e6


def main() -> None:
    """Print one line a wire."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    models: dict[str, OpenAIModel | AnthropicModel] = {"openai": OpenAIModel(), "anthropic": AnthropicModel()}
    for wire, model in models.items():
        half, whole = (min(micros_a_step(model.stream, count) for _ in range(3)) for count in (steps // 2, steps))
        line = {"workload": f"encode {wire}", "steps": steps, "unit": "µs a step", "half": round(half, 1)}
        line |= {"whole": round(whole, 1), "ratio": round(whole / half, 2)}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
