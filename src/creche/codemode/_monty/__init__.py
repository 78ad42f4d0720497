"""Programs in Monty: `_serve` runs them, each in a `_worker`; `_calls` are what they wait for, `_keeper` ends what is left."""

from ._serve import MontyRuntime as MontyRuntime

__all__ = ["MontyRuntime"]
