"""Which model each agent asks, and when that is worth telling."""

from creche.session import RouteNoted


class Routes:
    """The models of the agents of a tree, as their logs note them."""

    def __init__(self) -> None:
        self._routes: dict[str, str] = {}

    def note(self, path: str, fact: RouteNoted) -> str | None:
        """Return a model that is another one than before; for an agent that is new, another than its parent's."""
        route = f"{fact.provider}:{fact.model}"
        before = self._routes.get(path) or self._routes.get(path.rpartition("/")[0])
        self._routes[path] = route
        return None if before in (None, route) else route
