"""What a conversation says about turns besides their answers: what went wrong, and what is done about it."""

from creche.session import AssistantSaid, AttemptFailed, RecordAppended, RetryPlanned, RouteNoted, TurnEnded

from ._text import shortened

LONGEST = 400
"""Characters of a sentence."""


class Sentences:
    """A projection of records into sentences, one a failure.

    Args:
      speaker: Path of the agent whose turns are told of.
    """

    def __init__(self, speaker: str) -> None:
        self._speaker = speaker
        self._failures: dict[str, str] = {}
        self._routes: dict[str, str] = {}
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
                again = f"asks again in {delay:.1f} s" if delay else "asks again"
                return f"{path} got no answer and {again}: {self._failures.pop(path, '')}"
            case RouteNoted(provider, model=model):
                return self._note_route(path, f"{provider}:{model}")
            case AssistantSaid(finish=finish) if path == self._speaker:
                self._is_refused = finish == "refusal"
            case TurnEnded() as ended if path == self._speaker:
                return self._end(ended)
            case _:
                pass
        return None

    def _note_route(self, path: str, route: str) -> str | None:
        """Tell a model that is another one than before; for an agent that is new, another than its parent's."""
        before = self._routes.get(path) or self._routes.get(path.rpartition("/")[0])
        self._routes[path] = route
        return None if before in (None, route) else f"{path} asks {route}"

    def _end(self, ended: TurnEnded) -> str | None:
        match ended.reason:
            case "completed":
                return "the model refused to answer" if self._is_refused else None
            case "max-tokens":
                return "an answer was cut off at the limit of tokens; a higher --max-tokens may help"
            case "cancelled":
                return "the turn was cancelled"
            case _:
                return f"no answer: {ended.detail}"
