import functools
import json

import pytest

from creche.errors import DuplicateNameError, RegistryError
from creche.scope import Owner, make_registrar
from creche.tools import RUN_CODE, Tool, ToolContext, tool


@tool
def read(path: str, limit: int = 100) -> str:
    """Read a file.

    Lines are numbered.

    Args:
      path: Where it is.
      limit: How many lines.
    """
    return f"{path}:{limit}"


@tool(name="get", description="Get a page.", parallel=True)
async def fetch(url: str) -> str:
    """Fetch."""
    return url


class Client:
    async def get(self, url: str) -> str:
        return url

    def read(self, url: str) -> str:
        return url


class AsyncCall:
    async def __call__(self, url: str) -> str:
        return url


class SyncCall:
    def __call__(self, url: str) -> str:
        return url


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def awaiting(function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


# ---------------------------------------------------------------- what the decorator makes


def test_a_tool_has_the_name_the_docstring_and_the_signature_of_its_function():
    assert (read.name, read.description) == ("read", "Read a file.\n\nLines are numbered.")
    assert json.loads(read.parameters) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it is."},
            "limit": {"type": "integer", "description": "How many lines.", "default": 100},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_a_bare_tool_is_exclusive_runs_in_a_thread_and_is_waited_for():
    assert (read.parallel, read.inline, read.abandon, read.waits) == (False, False, False, False)


def test_options_replace_what_the_function_says():
    assert (fetch.name, fetch.description, fetch.parallel) == ("get", "Get a page.", True)


def test_an_empty_description_is_a_description():
    @tool(description="")
    def silent() -> None:
        """Do something."""

    assert silent.description == ""


def test_the_decorator_without_options_may_have_its_parentheses():
    @tool()
    def nothing() -> None: ...

    assert isinstance(nothing, Tool)
    assert nothing.name == "nothing"


def test_the_schema_is_what_the_model_is_told():
    assert (read.schema.name, read.schema.description) == (read.name, read.description)
    assert read.schema.parameters == read.parameters
    assert read.schema is read.schema, "made once, so that it keeps its encoding"


def test_a_lone_surrogate_in_a_docstring_does_not_reach_the_model():
    assert Tool("t", description="\ud800", parameters={}, run=print).schema.description == "\ufffd"


def test_the_parameter_that_takes_the_context_is_not_shown():
    @tool
    def look(at: str, context: ToolContext) -> str:
        return at

    assert list(json.loads(look.parameters)["properties"]) == ["at"]
    assert look.context_parameter == "context"
    assert read.context_parameter is None


def test_a_bound_method_can_be_a_tool():
    got = tool(Client().get)
    assert (got.name, got.waits) == ("get", True)
    assert list(json.loads(got.parameters)["properties"]) == ["url"]


def test_a_function_that_yields_cannot_be_a_tool():
    def lines(path: str):
        yield path

    async def pages(url: str):
        yield url

    for function, name in ((lines, "lines"), (pages, "pages")):
        with pytest.raises(TypeError) as caught:
            tool(function)
        assert str(caught.value) == f"tool function {name!r} yields; a body returns its result, all at once"


def test_a_partial_cannot_be_read_and_has_to_be_wrapped():
    with pytest.raises(TypeError, match=r"is not a function; wrap it in a def with typed parameters$"):
        tool(functools.partial(read.run, "a"))


# ---------------------------------------------------------------- called as a function


def test_a_tool_can_be_called_like_its_function():
    assert read("a.txt", limit=3) == "a.txt:3"


async def test_an_async_tool_can_be_called_like_its_function():
    assert await fetch("x") == "x"


def test_a_direct_call_checks_nothing():
    assert read(3) == "3:100"


# ---------------------------------------------------------------- sync and async bodies


ASYNC_BODIES = {
    "function": Client.get,
    "bound method": Client().get,
    "partial": functools.partial(Client.get, None),
    "partial of a partial": functools.partial(functools.partial(Client.get, None), "x"),
    "partial of a method": functools.partial(Client().get, url="x"),
    "object": AsyncCall(),
    "partial of an object": functools.partial(AsyncCall(), "x"),
    "under a decorator": logged(Client.get),
    "under two decorators": logged(logged(Client.get)),
    "made async by a decorator": awaiting(Client.read),
    "partial of a decorated one": functools.partial(logged(Client.get), None),
}
SYNC_BODIES = {
    "function": Client.read,
    "bound method": Client().read,
    "partial": functools.partial(Client.read, None),
    "object": SyncCall(),
    "class": Client,
    "built-in": len,
    "built-in method": "".join,
    "lambda": lambda url: url,
    "under a decorator": logged(Client.read),
}


@pytest.mark.parametrize("body", ASYNC_BODIES.values(), ids=ASYNC_BODIES)
def test_a_body_that_is_async_somehow_waits(body):
    assert Tool("t", description="", parameters={}, run=body).waits


@pytest.mark.parametrize("body", SYNC_BODIES.values(), ids=SYNC_BODIES)
def test_any_other_body_does_not(body):
    assert not Tool("t", description="", parameters={}, run=body).waits


@pytest.mark.parametrize("option", ["inline", "abandon"])
@pytest.mark.parametrize("body", [Client.get, AsyncCall(), functools.partial(Client.get, None)])
def test_an_option_for_sync_bodies_is_refused_on_an_async_one(option, body):
    with pytest.raises(TypeError) as caught:
        Tool("t", description="", parameters={}, run=body, **{option: True})
    assert str(caught.value) == f"tool 't': {option}=True is for sync bodies, and this one is async"


def test_the_decorator_refuses_such_options_too():
    with pytest.raises(TypeError) as caught:
        tool(abandon=True)(Client().get)
    assert str(caught.value) == "tool 'get': abandon=True is for sync bodies, and this one is async"


def test_an_inline_body_cannot_be_abandoned():
    with pytest.raises(TypeError) as caught:
        tool(inline=True, abandon=True)(read.run)
    assert str(caught.value) == "tool 'read': an inline body runs in the loop, so there is no thread to abandon"


# ---------------------------------------------------------------- raw schemas and registration


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_a_raw_schema_may_be_text_or_a_mapping_and_is_kept_as_canonical_text():
    text = '{"type":"object","properties":{"a":{"type":"integer"}}}'
    for given in (SCHEMA, text, json.dumps(SCHEMA, indent=2)):
        assert Tool("t", description="", parameters=given, run=print).parameters == text


@pytest.mark.parametrize("parameters", ["", "{", "[]", '"text"', {"default": float("nan")}])
def test_parameters_that_are_no_json_object_are_refused_when_the_tool_is_made(parameters):
    with pytest.raises(ValueError, match=r"is not (a|the) JSON Schema"):
        Tool("t", description="", parameters=parameters, run=print)


def test_a_schema_that_nothing_can_be_checked_against_is_refused_at_registration(bench):
    wrong = Tool("t", description="", parameters={"type": "objekt"}, run=print)
    with pytest.raises(
        RegistryError, match=r"^tool 't' cannot be called: the schema of the parameters is wrong at type: "
    ):
        bench.own.add(wrong)
    assert bench.registry.is_empty(bench.agent.scope)


def test_the_name_of_code_modes_tool_is_reserved_in_every_layer(bench):
    taken = Tool(RUN_CODE, description="", parameters={}, run=print)
    for pen in (bench.pen, bench.preset, bench.own):
        with pytest.raises(RegistryError) as caught:
            pen.add(taken)
        assert str(caught.value) == "'run_code' is reserved for code mode; give the tool another name"


def test_a_name_is_taken_once_a_layer(bench):
    bench.pen.add(read)
    other = make_registrar(bench.registry, Owner("other"), None)
    with pytest.raises(DuplicateNameError, match=r"'read'.*'test'"):
        other.add(read)
    bench.own.add(read)


def test_tools_are_compared_by_identity():
    first, second = [Tool("t", description="", parameters={}, run=print) for _ in range(2)]
    assert first != second
    assert len({first, second}) == 2


def test_a_tool_cannot_be_changed():
    with pytest.raises(AttributeError):
        read.parallel = True
