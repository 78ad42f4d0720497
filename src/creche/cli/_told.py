"""What a conversation says about turns besides their answers: what went wrong, and what is done about it."""

from creche.session import AssistantSaid, AttemptFailed, RecordAppended, RetryPlanned, RouteNoted, TurnEnded

from ._routes import Routes
from ._text import shortened

CUT_OFF = "an answer was cut off at the limit of tokens; a higher --max-tokens may help"
REFUSED = "the model refused to answer"
LONGEST = 400
"""Characters of a sentence."""


def asks_again(delay: float) -> str:
    """Return what is told of a request that will be made once more."""
    return f"asks again in {delay:.1f} s" if delay else "asks again"


class Sentences:
    """A projection of records into sentences, one a failure.

    Args:
      speaker: Path of the agent whose turns are told of.
    """

    def __init__(self, speaker: str) -> None:
        self._speaker = speaker
        self._failures: dict[str, str] = {}
        self._routes = Routes()
        self._is_refused = False

    def take(self, event: RecordAppended) -> str | None:
        """Return what is to be said about a record."""
        told = self._sentence(event)
        return None if told is None else shortened(told, LONGEST)

    def _sentence(self, event: RecordAppended) -> str | None:
        path = event.agent_path
        match event.record.data:
            case AttemptFailed(error):
                self._failures[path] = error
            case RetryPlanned(delay=delay):
                return f"{path} got no answer and {asks_again(delay)}: {self._failures.pop(path, '')}"
            case RouteNoted() as noted:
                route = self._routes.note(path, noted)
                return None if route is None else f"{path} asks {route}"
            case AssistantSaid(finish=finish) if path == self._speaker:
                self._is_refused = finish == "refusal"
            case TurnEnded() as ended if path == self._speaker:
                return self._end(ended)
            case _:
                pass
        return None

    def _end(self, ended: TurnEnded) -> str | None:
        match ended.reason:
            case "completed":
                return REFUSED if self._is_refused else None
            case "max-tokens":
                return CUT_OFF
            case "cancelled":
                return "the turn was cancelled"
            case _:
                return f"no answer: {ended.detail}"
