"""Adapters: the scripted model and the function model, for tests, demos and benchmarks."""

from creche._util import publish

from ._function import FunctionModel as FunctionModel
from ._items import Call as Call, Fail as Fail, Say as Say, call as call, fail as fail, say as say
from ._scripted import ScriptedModel as ScriptedModel

__all__ = ["Call", "Fail", "FunctionModel", "Say", "ScriptedModel", "call", "fail", "say"]

publish(globals(), __name__)
