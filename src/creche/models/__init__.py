"""The seam to language models: requests, chunks, failures, and the fake models that need no key.

An adapter (`Model`) knows one provider's wire. It is given a `ModelRequest` and yields chunks; everything
else, retries included, is the loop's.
"""

from creche._util import publish

from ._chunks import (
    Assembler as Assembler,
    Chunk as Chunk,
    Delta as Delta,
    Finished as Finished,
    FinishReason as FinishReason,
    ReasoningDelta as ReasoningDelta,
    StreamRun as StreamRun,
    TextDelta as TextDelta,
    ToolCallDelta as ToolCallDelta,
    UsageReported as UsageReported,
    expand_stream as expand_stream,
    pack_stream as pack_stream,
)
from ._failures import (
    FAILURES as FAILURES,
    Failure as Failure,
    failure_of_status as failure_of_status,
    model_error as model_error,
)
from ._function import FunctionModel as FunctionModel
from ._items import Call as Call, Fail as Fail, Say as Say, call as call, fail as fail, say as say
from ._model import (
    Capabilities as Capabilities,
    KeepsOpen as KeepsOpen,
    Model as Model,
    PreparedCall as PreparedCall,
    RetryPolicy as RetryPolicy,
    check_model_given as check_model_given,
)
from ._request import (
    ModelOptions as ModelOptions,
    ModelRequest as ModelRequest,
    RequestHead as RequestHead,
    Settings as Settings,
    Usage as Usage,
)
from ._routes import (
    ModelAlias as ModelAlias,
    ModelProvider as ModelProvider,
    Route as Route,
    StandardProviders as StandardProviders,
    find_provider as find_provider,
    require_provider as require_provider,
    resolve_model as resolve_model,
)
from ._scripted import ScriptedModel as ScriptedModel

__all__ = [
    "FAILURES",
    "Assembler",
    "Call",
    "Capabilities",
    "Chunk",
    "Delta",
    "Fail",
    "Failure",
    "FinishReason",
    "Finished",
    "FunctionModel",
    "KeepsOpen",
    "Model",
    "ModelAlias",
    "ModelOptions",
    "ModelProvider",
    "ModelRequest",
    "PreparedCall",
    "ReasoningDelta",
    "RequestHead",
    "RetryPolicy",
    "Route",
    "Say",
    "ScriptedModel",
    "Settings",
    "StandardProviders",
    "StreamRun",
    "TextDelta",
    "ToolCallDelta",
    "Usage",
    "UsageReported",
    "call",
    "check_model_given",
    "expand_stream",
    "fail",
    "failure_of_status",
    "find_provider",
    "model_error",
    "pack_stream",
    "require_provider",
    "resolve_model",
    "say",
]

publish(globals(), __name__)
