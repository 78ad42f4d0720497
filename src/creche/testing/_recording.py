"""A model that remembers what it was asked."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import attrs
import trio

from creche._util import final
from creche.models import Chunk, KeepsOpen, Model, ModelRequest, PreparedCall, Settings


@attrs.frozen
class SentRequest:
    """One request as it was sent."""

    agent_path: str
    """Which agent."""
    session_id: str = attrs.field(kw_only=True)
    """Which session."""
    canonical: bytes = attrs.field(kw_only=True, repr=False)
    """Its canonical bytes at that moment."""


@final
class RecordingModel:
    """Stands before another model and keeps every request, encoded at the moment it was sent.

    Args:
      model: The model that answers.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.provider: str = model.provider
        """As the model's."""
        self.model: str = model.model
        """As the model's."""
        self.limiter: trio.CapacityLimiter | None = model.limiter
        """As the model's."""
        if isinstance(model, KeepsOpen):
            # So that it is a `KeepsOpen` exactly if the model is.
            self.opened: Callable[[], AbstractAsyncContextManager[object]] = model.opened
            """As the model's, if it has one."""
        self.sent: list[SentRequest] = []
        """Every request so far."""

    def sent_by(self, session_id: str) -> list[bytes]:
        """Return the canonical bytes of one session's requests, in order."""
        return [each.canonical for each in self.sent if each.session_id == session_id]

    async def prepare(self, settings: Settings, /) -> PreparedCall:
        """Ask the model."""
        return await self._model.prepare(settings)

    def stream(self, request: ModelRequest, /) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Note the request and let the model answer."""
        self.sent.append(
            SentRequest(request.agent_path, session_id=request.session_id, canonical=request.canonical_bytes())
        )
        return self._model.stream(request)
