"""The sentences that a user can meet, read from the source of creche.

A *site* is a call that makes an error or the failed result of a call: of an exception's class, or of one of `MAKERS`.
Its sentence is a *template*: text with places to fill. The same one is found from wherever it is written:

Rule 1: a text, an f-string, a sum of them, either branch of a conditional, the items of a list, the second of a pair.
Rule 2: a parameter is what the calls of its function give; so a function that passes a sentence on makes sites of its calls.
Rule 3: a variable is what is assigned or appended to it, a constant of a module what it is defined as.
Rule 4: a call of a function of ours is what it returns or yields.
Rule 5: what came from elsewhere (an attribute, the text of another exception) is a place to fill, and a template of nothing
else is no sentence. A site that has none is told in `Reader.unread`: no site is left out in silence.
"""

import ast
import builtins
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
from doc_trees import (
    Function,
    Module,
    argument,
    assigned,
    given_back,
    name_of,
    place_for,
    position_of,
    read_module,
    super_call,
)

SOURCE = Path(__file__).parents[2] / "src" / "creche"
PLACE = re.compile(r"\{[^{}]*\}")
COMMAND = "creche: "
"""What the command line begins a sentence with."""

MAKERS: dict[str, tuple[int | str, str]] = {
    "ProgramEnd": ("message", "the end of a program"),
    "complain": (0, "the command line"),
    "_refuse_line": (0, "the command line"),
    "failure": (1, "the result of a call"),
    "model_error": (1, "ModelError"),
    "error": (1, "ModelError"),
    "_error": (1, "ModelError"),
    "status": (1, "answer of the mock provider"),
    "write": (0, "the command line"),
}
"""What makes a failure besides classes of exceptions: which argument is the sentence, by position or name, and how it is met."""
SHOWN_AS = {
    "MismatchError": "InvalidArgumentsError",
    "NoPlaceError": "ModelError",
    "RefusedError": "InvalidArgumentsError",
    "ToolCallError": "ToolCallError in a program",
    "UserCodeFailed": "the command line",
    "WrongUsage": "the command line",
    "_NoJsonFormError": "the result of a call",
    "_Refused": "the result of a call",
    "_UnsupportedError": "TypeError",
    "_WrongValueError": "CorruptLogError",
}
"""What becomes of exceptions that do not leave their room."""
NOT_MET = {
    "AssertionError": "of the suites for tests, or of ours: a bug",
    "_RefusedError": "read by the adapter",
    "cli/_survey.py": "the demo reads what our own tools write",
    "codemode/_bubblewrap/_child.py:ValueError": "becomes the end of a program",
    "codemode/_bubblewrap/_program.py:ValueError": "becomes the end of a program",
    "models/adapters/_local_reader.py:ValueError": "told inside of a `ModelError`",
    "models/adapters/_reading.py:TypeError": "told inside of a `ModelError`",
    "models/adapters/_wire.py": "told inside of a `ModelError`",
}
"""Classes, files, and classes in a file, whose sentences nobody meets as they are, and why."""

Template = tuple[str, Module, int]
"""A text with places to fill, and where it is written."""


@attrs.frozen(order=True)
class Message:
    """A template, and how a user meets it."""

    room: str
    """Where it comes from."""
    template: str
    """Its text, with ``{name}`` where something is filled in."""
    raised: str
    """The class of the exception, or how else it is met."""
    place: str
    """File and line, for those who look for it."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it one entry: how a place to fill is called is not part of it."""
        return self.room, PLACE.sub("{}", self.template)


class Reader:
    """Reads the package once, and finds the templates of every site."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.errors: dict[str, ast.ClassDef | None] = {
            name: None
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException)
        }
        self.left_out: set[str] = set()
        """Keys of `NOT_MET` that were used."""
        self.unread: set[str] = set()
        """Sites whose sentence was not found: file, how it is met, and what is given for it."""
        self.functions: dict[str, list[tuple[Module, Function]]] = {}
        self._constants: dict[str, list[ast.expr]] = {}
        self._calls: dict[str, list[tuple[Module, ast.Call]]] = {}
        # What is being looked at, so that what leads back to itself ends; and the calls that led into a function.
        self._under_way: set[int] = set()
        self._inside: dict[Function, tuple[Module, ast.Call]] = {}
        self.modules = [read_module(source, path) for path in sorted(source.rglob("*.py"))]
        for module in self.modules:
            self._index(module)

    def _index(self, module: Module) -> None:
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append((module, node))
            elif isinstance(node, ast.ClassDef) and any(name_of(base) in self.errors for base in node.bases):
                self.errors[node.name] = node
            elif isinstance(node, ast.Call) and (name := name_of(node.func)):
                self._calls.setdefault(name, []).append((module, node))
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._constants.setdefault(node.targets[0].id, []).append(node.value)

    # ------------------------------------------------------------ sites

    def messages(self) -> list[Message]:
        """Return every message that a user can meet, once each, by room and text."""
        found: dict[tuple[str, str], Message] = {}
        for message in sorted(self._found()):
            found.setdefault(message.key, message)
        return list(found.values())

    def _found(self) -> Iterator[Message]:
        for name, cls in self.errors.items():
            own = super_call(cls)
            if own is not None and isinstance(own.args[0], ast.JoinedStr):  # the calls give what is filled in
                module = next(module for module, call in self._calls["__init__"] if call is own)
                yield from self._at(module, own, own.args[0], name)
                continue
            for module, call in self._calls.get(name, ()):
                yield from self._at(module, call, argument(call, 0, "message"), name)
        for name, (position, raised) in MAKERS.items():
            for module, call in self._calls.get(name, ()):
                yield from self._at(module, call, argument(call, *_place_of(position)), raised)

    def _at(self, module: Module, call: ast.Call, sentence: ast.expr | None, raised: str) -> Iterator[Message]:
        if sentence is None:
            return
        templates = [each for each in self._resolve(module, sentence) if _is_sentence(each[0])]
        if name_of(call.func) == "write":  # of any stream
            templates = [each for each in templates if each[0].startswith(COMMAND)]
        elif not templates:
            self.unread.add(f"{module.file}: {raised}({ast.unparse(sentence)})")
        for text, origin, line in templates:
            left_out = {raised, origin.file, f"{origin.file}:{raised}"} & NOT_MET.keys()
            self.left_out |= left_out
            if not left_out:
                place = f"{origin.file}:{line}"
                yield Message(origin.room, " ".join(text.split()), SHOWN_AS.get(raised, raised), place)

    # ------------------------------------------------------------ templates

    def _resolve(self, module: Module, node: ast.expr) -> set[Template]:
        """Return the templates that an expression can be, each with where it is written."""
        if id(node) in self._under_way:
            return set()
        self._under_way.add(id(node))
        try:
            return set(self._templates(module, node))
        finally:
            self._under_way.discard(id(node))

    def _templates(self, module: Module, node: ast.expr) -> Iterable[Template]:
        match node:
            case ast.JoinedStr():
                found = self._filled(module, node)
            case ast.BinOp(op=ast.Add()):
                found = self._summed(module, node)
            case ast.Name():
                found = self._named(module, node)
            case ast.Call():
                found = self._called(module, node)
            case ast.Constant(value=str(text)):
                found = [(text, module, node.lineno)]
            case _ if (parts := _parts(node)) is not None:
                found = {each for part in parts for each in self._resolve(module, part)}
            case _:
                found = [(place_for(node), module, node.lineno)]
        return found

    def _filled(self, module: Module, node: ast.JoinedStr) -> Iterable[Template]:
        filled = [value.value for value in node.values if isinstance(value, ast.FormattedValue)]
        text = "".join(
            str(value.value)
            if isinstance(value, ast.Constant)
            else self._inlined(module, value.value) or place_for(value.value)
            for value in node.values
            if isinstance(value, ast.Constant | ast.FormattedValue)
        )
        if re.search("[A-Za-z]", PLACE.sub("", text)):
            return [(text, module, node.lineno)]
        sentences = [value for value in filled if not isinstance(value, ast.BoolOp)]
        return {each for value in sentences for each in self._resolve(module, value)}

    def _inlined(self, module: Module, node: ast.expr) -> str | None:
        """Return the text of a name that can be but one text: of a constant, or of a variable that is set once."""
        if not isinstance(node, ast.Name):
            return None
        for function in module.functions_around(node):
            values = list(assigned(function, node.id))
            if len(values) == 1 and isinstance(values[0], ast.JoinedStr):
                texts = {text for text, *_ in self._resolve(module, values[0])}
                return texts.pop() if len(texts) == 1 else None
        return self._constant(node.id)

    def _constant(self, name: str) -> str | None:
        """Return the text of a constant, if only one module has one of that name."""
        match self._constants.get(name):
            case [ast.Constant(value=str() | int() as value)]:
                return str(value)
        return None

    def _summed(self, module: Module, node: ast.BinOp) -> set[Template]:
        left = self._resolve(module, node.left)
        if isinstance(node.right, ast.Call | ast.Name):  # more of the same, or the end of the sentence
            return left
        pairs = itertools.product(left, self._resolve(module, node.right))
        return {(one + two, module, node.lineno) for (one, *_), (two, *_) in pairs}

    def _named(self, module: Module, node: ast.Name) -> Iterable[Template]:
        constant = self._constant(node.id)
        if constant is not None:
            return [(constant, module, node.lineno)]
        for function in module.functions_around(node):
            values = list(assigned(function, node.id))
            if values:
                return {each for value in values for each in self._resolve(module, value)}
            position = position_of(function, node.id)
            if position is not None:
                return self._given(module, function, node.id, position)
        return [(place_for(node), module, node.lineno)]

    def _given(self, module: Module, function: Function, name: str, position: int) -> Iterable[Template]:
        """Return what the calls of a function give for a parameter."""
        if function in self._inside:  # of a function that hands on what it is given: what this very call gives
            calls = [self._inside[function]]
        else:
            called = module.class_of(function) if function.name == "__init__" else function.name
            alone = len(self.functions[function.name]) == 1 or called in self.errors
            calls = [(other, call) for other, call in self._calls.get(called, ()) if alone or other is module]
        return {
            each
            for other, call in calls
            if (given := argument(call, position, name)) is not None
            for each in self._resolve(other, given)
        }

    def _called(self, module: Module, call: ast.Call) -> Iterable[Template]:
        name = name_of(call.func)
        if name in ("join", "list", "tuple", "islice") and call.args:
            return self._resolve(module, call.args[0])
        candidates = self.functions.get(name, [])
        own = [each for each in candidates if each[0] is module] or (candidates if len(candidates) == 1 else [])
        if not own:
            return [(place_for(call), module, call.lineno)]
        found: set[Template] = set()
        for other, function in own:
            if function not in self._inside:
                self._inside[function] = module, call
                found |= {each for value in given_back(function) for each in self._resolve(other, value)}
                del self._inside[function]
        return found


def _place_of(argument: int | str) -> tuple[int, str]:
    """Return position and name of the argument of a maker; a large one if it is given by name alone."""
    return (10_000, argument) if isinstance(argument, str) else (argument, "")


def _is_sentence(text: str) -> bool:
    """Tell whether a text is one, and not nothing, or the end of another sentence."""
    said = PLACE.sub("", text.removeprefix(COMMAND))
    return re.search("[A-Za-z]{2}", said) is not None and text[0] not in ";.,"


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """Return the expressions that one can be, or is made of; ``None`` if it is none of these."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.BoolOp(values=values) | ast.List(elts=values):
            return values
        case ast.Tuple(elts=[_, value]) | ast.ListComp(elt=value) | ast.GeneratorExp(elt=value):
            return [value]
        case ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value):
            return [value]
    return None
