"""The seam through which an agent reaches its host."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from creche.models import Model
from creche.session import SessionLog

from ._spec import AgentSpec

if TYPE_CHECKING:
    from ._agent import Agent


class Composer(Protocol):
    """Makes agents: binds their scope, runs their setup, publishes them, and takes them down again."""

    def compose(
        self,
        spec: AgentSpec,
        *,
        parent: "Agent | None" = None,
        preset: str | None = None,
        session: SessionLog | None = None,
    ) -> AbstractAsyncContextManager["Agent"]:
        """Open an agent for the length of the block; nobody runs its turns but the caller.

        Contract: the block has a cancel scope of its own, which ends with whatever is above the agent. When the
        block is left, also by cancellation, the agents below have ended, what the agent registered is undone, who
        waits for it is told, and its closing records are flushed.

        Args:
          spec: What it is made from.
          parent: The agent that starts it; its scope is bound under that one's.
          preset: The preset to compose it under, instead of the parent's scope.
          session: A log to go on with, such as a fork; a fresh one if absent.

        Raises:
          DuplicateNameError: A live sibling has the name.
          NotRegisteredError: There is no such preset, or no such model provider.
          LimitReachedError: It would stand too deep.
          AuthorityError: Under the preset it would see a tool that the parent does not, without a grant.
          PluginError: An item of the setup failed.
          AgentClosedError: The parent does not run any more.
          ScopeClosedError: What makes agents is closing.
        """
        ...

    def keep_open(self, model: Model) -> None:
        """Keep open what a model holds between requests, such as connections, until the host ends. Synchronous.

        Contract: cheap for a model that is kept open already, or that holds nothing.
        """
        ...
