"""Use from programs that do not run on trio: plain code and notebooks with `run_sync`, asyncio with a portal."""

from creche._util import publish

from ._portal import Portal as Portal, open_portal as open_portal
from ._run_sync import run_sync as run_sync
from ._stream import PortalStream as PortalStream

__all__ = ["Portal", "PortalStream", "open_portal", "run_sync"]

publish(globals(), __name__)
