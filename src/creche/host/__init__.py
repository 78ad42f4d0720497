"""The host: the root of a process's agents, with the shared registry, the services and the nursery."""

from creche._util import publish

from ._host import AgentClosed as AgentClosed, AgentOpened as AgentOpened, Host as Host
from ._open import open_host as open_host

__all__ = ["AgentClosed", "AgentOpened", "Host", "open_host"]

publish(globals(), __name__)
