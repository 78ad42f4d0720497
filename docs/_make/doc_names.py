"""The public names of creche: the rooms, and what each of them exports."""

import importlib
import pkgutil

import creche

ROOMS = tuple(
    module.name
    for module in pkgutil.walk_packages(creche.__path__, "creche.")
    if not any(part.startswith("_") for part in module.name.split("."))
)
"""Dotted names of the public modules but the root."""

HOMES: dict[str, str] = {
    name: f"{room}.{name}" for room in ROOMS for name in getattr(importlib.import_module(room), "__all__", ())
}
"""The public path of each public name; no two rooms have one in common."""
