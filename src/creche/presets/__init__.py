"""Presets: named compositions that are mounted once and nest, and what composing an agent under them decides."""

from creche._util import publish

from ._composition import (
    Composition as Composition,
    asks_now as asks_now,
    decide_composition as decide_composition,
    decide_route as decide_route,
    new_header as new_header,
)
from ._preset import (
    Preset as Preset,
    Standing as Standing,
    StandingPresets as StandingPresets,
    mount_presets as mount_presets,
)

__all__ = [
    "Composition",
    "Preset",
    "Standing",
    "StandingPresets",
    "asks_now",
    "decide_composition",
    "decide_route",
    "mount_presets",
    "new_header",
]

publish(globals(), __name__)
