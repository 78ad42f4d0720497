"""How the prompt, the runtime contexts and the header reach the log: pure decisions, no state.

Each function is given what the log holds and what was rendered, and returns what is to be appended, in
order. Nothing to append is the common case. The tables behind them are in
`docs/explanation/prompt-in-the-log.md`; each row is a test.
"""

from collections.abc import Sequence

import attrs

from creche.messages import DeveloperMessage, SystemMessage, UserMessage
from creche.models import RequestHead

from ._facts import Fact, HeaderReason, HeaderWritten, Record, RouteNoted, SystemSaid, ToolsChanged
from ._state import CONTEXT_SOURCE, SnapshotState

NO_CONTEXT = "There is no runtime context now. This supersedes every earlier snapshot."
"""The marker that takes the place of a snapshot when the last context has gone."""


@attrs.frozen
class Update:
    """One record to append."""

    fact: Fact
    """What it says."""
    replace: tuple[int, int] | None = attrs.field(default=None, kw_only=True)
    """The range it takes the place of."""


def project_system_prompt(
    nodes: Sequence[Record], rendered: str, *, in_history: bool, starts_series: bool
) -> list[Update]:
    """Decide how the log comes to say the rendered system prompt. Run once an attempt.

    Args:
      nodes: The system prompts on the surface, in order.
      rendered: The prompt of this step.
      in_history: Whether the prepared call takes a changed prompt after the cached history.
      starts_series: Whether the provider's prefix cache cannot be expected to hold anyway.
    """
    if not nodes:
        return [Update(SystemSaid(SystemMessage(rendered)))]
    texts = [_text(node) for node in nodes]
    if not in_history or starts_series or not rendered:
        updates = [_rewrite(node, "") for node, text in zip(nodes[1:], texts[1:], strict=True) if text]
        if texts[0] != rendered:
            updates.append(_rewrite(nodes[0], rendered))
        return updates
    latest = next((text for text in reversed(texts) if text), texts[0])
    return [] if latest == rendered else [Update(SystemSaid(SystemMessage(rendered)))]


def _text(node: Record) -> str:
    assert isinstance(node.data, SystemSaid), "the surface keeps system prompts apart"
    return node.data.message.text


def _rewrite(node: Record, text: str) -> Update:
    return Update(SystemSaid(SystemMessage(text)), replace=(node.seq, node.seq))


def project_snapshot(state: SnapshotState, rendered: str) -> UserMessage | None:
    """Return the snapshot message that is due, if any.

    Args:
      state: What stands on the surface.
      rendered: The joined runtime contexts of this step, ``""`` if there are none.
    """
    if not state.existed and not rendered:
        return None
    wanted = rendered or NO_CONTEXT
    if state.seq is not None and state.text == wanted:
        return None
    return UserMessage(wanted, source=CONTEXT_SOURCE)


def project_header(
    last: HeaderWritten | None, head: RequestHead, *, first_request: bool, series_cause: bool
) -> HeaderWritten | None:
    """Return the header to write before a request, if one is due.

    Args:
      last: The newest header of the log.
      head: Settings and tools of this request.
      first_request: Whether this is the first request of this run of the agent's loop.
      series_cause: Whether the step asked for a new series or something on the surface was replaced.
    """
    if first_request:
        reason: HeaderReason = "initial" if last is None else "resume"
        return HeaderWritten(head, reason=reason, starts_series=series_cause)
    assert last is not None, "a request was made before"
    if head is not last.head and head != last.head:
        return HeaderWritten(head, reason="change", starts_series=series_cause)
    return HeaderWritten(last.head, reason="series") if series_cause else None


def project_tools(last: HeaderWritten | None, header: HeaderWritten, seq: int) -> ToolsChanged | None:
    """Return the announcement of tools that came and went with a new header, if there are any.

    Args:
      last: The header before.
      header: The new one.
      seq: Its sequence number.
    """
    if last is None or header.reason in ("initial", "series"):
        return None
    before = [tool.name for tool in last.head.tools]
    after = [tool.name for tool in header.head.tools]
    additions = tuple([name for name in after if name not in before])
    removals = tuple([name for name in before if name not in after])
    if not additions and not removals:
        return None
    return ToolsChanged(DeveloperMessage(additions, removals=removals), header=seq if additions else None)


def project_route(
    last: RouteNoted | None,
    provider: str,
    *,
    model: str,
    context_window: int | None,
    system_prompt_update: str | None,
) -> RouteNoted | None:
    """Return what is to be noted of the route, if it differs from what was last noted; the fields are those of the record."""
    route = (provider, model, context_window, system_prompt_update)
    if last is not None and route == (last.provider, last.model, last.context_window, last.system_prompt_update):
        return None
    return RouteNoted(provider, model=model, context_window=context_window, system_prompt_update=system_prompt_update)
