"""Presets: named compositions that are mounted once and nest."""

from creche._util import publish

from ._preset import (
    Preset as Preset,
    Standing as Standing,
    StandingPresets as StandingPresets,
    mount_presets as mount_presets,
)

__all__ = [
    "Preset",
    "Standing",
    "StandingPresets",
    "mount_presets",
]

publish(globals(), __name__)
