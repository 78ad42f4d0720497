"""The sentences that a user can meet, read from the source of creche.

A *site* is a call that makes an error or the failed result of a call: of an exception's class, of `complain`, of `failure`.
Its sentence is a *template*: text with places to fill. The same one is found from wherever it is written:

Rule 1: a text, an f-string, a sum of them, either branch of a conditional, the items of a list, the second of a pair.
Rule 2: a parameter is what the calls of its function give; so a function that passes a sentence on makes sites of its calls.
Rule 3: a variable is what is assigned or appended to it, a constant of a module what it is defined as.
Rule 4: a call of a function of ours is what it returns or yields.
Rule 5: what came from elsewhere (an attribute, the text of another exception) is a place to fill, and a template of nothing
else is no sentence.
"""

import ast
import builtins
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

SOURCE = Path(__file__).parents[2] / "src" / "creche"
PLACE = re.compile(r"\{[^{}]*\}")
MAKERS = {
    "complain": (0, "the command line"),
    "failure": (1, "the result of a call"),
    "model_error": (1, "ModelError"),
    "error": (1, "ModelError"),
    "_error": (1, "ModelError"),
    "status": (1, "answer of the mock provider"),
}
"""What makes a failure besides classes of exceptions: which argument is the sentence, and how it is met."""
SHOWN_AS = {
    "MismatchError": "InvalidArgumentsError",
    "NoPlaceError": "ModelError",
    "RefusedError": "InvalidArgumentsError",
    "ToolCallError": "ToolCallError in a program",
    "WrongUsage": "the command line",
    "_NoJsonFormError": "the result of a call",
    "_Refused": "the result of a call",
    "_UnsupportedError": "TypeError",
    "_WrongValueError": "CorruptLogError",
}
"""What becomes of exceptions that do not leave their room."""
NOT_MET = {
    "AssertionError": "of the suites for tests, or of ours: a bug",
    "StopAsyncIteration": "Python's own",
    "_RefusedError": "read by the adapter",
    "cli/_survey.py": "the demo reads what our own tools write",
    "codemode/_bubblewrap/_child.py:ValueError": "becomes the end of a program",
    "codemode/_bubblewrap/_program.py": "becomes the end of a program",
    "codemode/_monty/_source.py": "becomes the end of a program",
    "models/adapters/_local_reader.py:ValueError": "told inside of a `ModelError`",
    "models/adapters/_reading.py:TypeError": "told inside of a `ModelError`",
    "models/adapters/_wire.py": "told inside of a `ModelError`",
}
"""Classes, files, and classes in a file, whose sentences nobody meets as they are, and why."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen(order=True)
class Message:
    """A template, and how a user meets it."""

    room: str
    """Where it comes from."""
    template: str
    """Its text, with ``{name}`` where something is filled in."""
    raised: str = attrs.field(order=False)
    """The class of the exception, or how else it is met."""
    place: str = attrs.field(order=False)
    """File and line, for those who look for it."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it one entry: how a place to fill is called is not part of it."""
        return self.room, PLACE.sub("{}", self.template)


@attrs.frozen(eq=False)
class Module:
    """A module that was read."""

    path: Path
    tree: ast.Module
    parents: dict[ast.AST, ast.AST]

    @property
    def room(self) -> str:
        """The room it belongs to."""
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return "models.adapters" if parts[:2] == ("models", "adapters") else parts[0]


Template = tuple[str, Module, int]
"""A text with places to fill, and where it is written."""


class Reader:
    """Reads the package once, and finds the templates of every site."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.modules = [_read(path) for path in sorted(source.rglob("*.py"))]
        self.functions: dict[str, list[tuple[Module, Function]]] = {}
        self.constants: dict[str, list[ast.expr]] = {}
        self.errors: dict[str, ast.ClassDef | None] = {
            name: None for name, value in vars(builtins).items() if _is_error(value)
        }
        self.calls: dict[str, list[tuple[Module, ast.Call]]] = {}
        for module in self.modules:
            self._index(module)
        self._under_way: set[int] = set()
        self._inside: dict[Function, tuple[Module, ast.Call]] = {}

    def _index(self, module: Module) -> None:
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append((module, node))
            elif isinstance(node, ast.ClassDef) and any(_name_of(base) in self.errors for base in node.bases):
                self.errors[node.name] = node
            elif isinstance(node, ast.Call) and (name := _name_of(node.func)):
                self.calls.setdefault(name, []).append((module, node))
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants.setdefault(node.targets[0].id, []).append(node.value)

    # ------------------------------------------------------------ sites

    def messages(self) -> dict[tuple[str, str], Message]:
        """Return every message that a user can meet."""
        found = sorted(self._found(), key=lambda message: (message.key, message.raised, message.place))
        return {message.key: message for message in reversed(found)}

    def _found(self) -> set[Message]:
        found: set[Message] = set()
        for name, cls in self.errors.items():
            own = _super_call(cls)
            if own is not None and isinstance(own.args[0], ast.JoinedStr):
                module = next(module for module, node in self._classes() if node is cls)
                found |= self._at(module, own, own.args[0], name)
                continue
            for module, call in self.calls.get(name, ()):
                found |= self._at(module, call, _argument(call, 0, "message"), name)
        for name, (position, raised) in MAKERS.items():
            for module, call in self.calls.get(name, ()):
                found |= self._at(module, call, _argument(call, position, ""), raised)
        return found

    def _classes(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    yield module, node

    def _at(self, module: Module, call: ast.Call, sentence: ast.expr | None, raised: str) -> set[Message]:
        if sentence is None:
            return set()
        return {
            Message(origin.room, " ".join(text.split()), SHOWN_AS.get(raised, raised), f"{file}:{line}")
            for text, origin, line in self._resolve(module, sentence)
            if re.search("[A-Za-z]{2}", PLACE.sub("", text)) and text[0] not in ";.,"  # those end another sentence
            for file in [str(origin.path.relative_to(SOURCE))]
            if not {raised, file, f"{file}:{raised}"} & NOT_MET.keys()
        }

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
            case ast.Constant(value=str(text)):
                return [(text, module, node.lineno)]
            case ast.JoinedStr(values=values):
                return self._filled(module, node, values)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._summed(module, node, left, right)
            case ast.IfExp(body=body, orelse=orelse):
                return self._resolve(module, body) | self._resolve(module, orelse)
            case ast.BoolOp(values=values) | ast.List(elts=values):
                return {each for value in values for each in self._resolve(module, value)}
            case ast.Tuple(elts=[_, sentence]):
                return self._resolve(module, sentence)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                return self._resolve(module, element)
            case ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value):
                return self._resolve(module, value)
            case ast.Name(id=name):
                return self._named(module, node, name)
            case ast.Call():
                return self._called(module, node)
            case _:
                return [("{%s}" % _place_name(node), module, node.lineno)]

    def _summed(self, module: Module, node: ast.expr, left: ast.expr, right: ast.expr) -> set[Template]:
        if isinstance(right, ast.Call | ast.Name):
            return self._resolve(module, left)
        pairs = itertools.product(self._resolve(module, left), self._resolve(module, right))
        return {(one + two, module, node.lineno) for (one, *_), (two, *_) in pairs}

    def _filled(
        self, module: Module, node: ast.JoinedStr, values: list[ast.expr]
    ) -> Iterable[Template]:
        parts = []
        for value in values:
            if isinstance(value, ast.Constant):
                parts.append(str(value.value))
            elif isinstance(value, ast.FormattedValue):
                constant = self._constant(value.value)
                parts.append("{%s}" % _place_name(value.value) if constant is None else constant)
        text = "".join(parts)
        if re.search("[A-Za-z]", PLACE.sub("", text)):
            return [(text, module, node.lineno)]
        filled = [value.value for value in values if isinstance(value, ast.FormattedValue)]
        filled = [value for value in filled if not isinstance(value, ast.BoolOp)]
        return {each for value in filled for each in self._resolve(module, value)}

    def _constant(self, node: ast.expr) -> str | None:
        """Return the text of a constant of a module, if a name means one."""
        values = self.constants.get(node.id, []) if isinstance(node, ast.Name) else []
        texts = {value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str | int)}
        return str(texts.pop()) if len(texts) == 1 and len(values) == 1 else None

    def _named(self, module: Module, node: ast.expr, name: str) -> Iterable[Template]:
        constant = self._constant(node)
        if constant is not None:
            return [(constant, module, node.lineno)]
        for function in _enclosing(module, node):
            values = list(_assigned(function, name))
            if values:
                return {each for value in values for each in self._resolve(module, value)}
            position = _parameter(function, name)
            if position is not None:
                return self._given(module, function, name, position)
        return [("{%s}" % _place_name(node), module, node.lineno)]

    def _given(
        self, module: Module, function: Function, name: str, position: int
    ) -> Iterable[Template]:
        """Return what the calls of a function give for a parameter."""
        if function in self._inside:  # what this very call gives, of a function that hands on what it is given
            other, call = self._inside[function]
            given = _argument(call, position, name)
            return self._resolve(other, given) if given is not None else ()
        found: set[Template] = set()
        called = _class_of(module, function) if function.name == "__init__" else function.name
        alone = len(self.functions[function.name]) == 1
        for other, call in self.calls.get(called or "", ()):
            if other is module or alone or called in self.errors:
                given = _argument(call, position, name)
                if given is not None:
                    found |= self._resolve(other, given)
        return found

    def _called(self, module: Module, call: ast.Call) -> Iterable[Template]:
        name = _name_of(call.func)
        if name in ("join", "list", "tuple", "islice") and call.args:
            return self._resolve(module, call.args[0])
        candidates = self.functions.get(name, [])
        own = [each for each in candidates if each[0] is module] or (candidates if len(candidates) == 1 else [])
        if not own:
            return [("{%s}" % _place_name(call), module, call.lineno)]
        found: set[Template] = set()
        for other, function in own:
            if function not in self._inside:
                self._inside[function] = module, call
                found |= {each for value in _given_back(function) for each in self._resolve(other, value)}
                del self._inside[function]
        return found


# ---------------------------------------------------------------- reading trees


def _read(path: Path) -> Module:
    tree = ast.parse(path.read_text("utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Module(path, tree, parents)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _place_name(node: ast.expr) -> str:
    """Return a word for a place to fill: the last name in its expression that says something."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(func=func, args=[first, *_]) if _name_of(func) in ("str", "repr", "len", "sorted", "quoted", "map", "join"):
            return _place_name(first)
        case ast.Call(func=func, args=args):
            return _place_name(args[-1]) if args else _place_name(func)
        case ast.BoolOp(values=[first, *_]) | ast.Subscript(value=first) | ast.IfExp(test=first) | ast.Starred(value=first):
            return _place_name(first)
        case ast.ListComp(generators=[first, *_]) | ast.GeneratorExp(generators=[first, *_]):
            return _place_name(first.iter)
        case _:
            return "value"


def _super_call(cls: ast.ClassDef | None) -> ast.Call | None:
    """Return the call of ``super().__init__`` in a class of errors, if it has one of its own."""
    for node in ast.walk(cls) if cls is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return node
    return None


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = call.args[: position + 1]
    return plain[position] if len(plain) > position and not any(isinstance(each, ast.Starred) for each in plain) else None


def _enclosing(module: Module, node: ast.AST) -> Iterator[Function]:
    while node in module.parents:
        node = module.parents[node]
        if isinstance(node, Function):
            yield node


def _class_of(module: Module, function: Function) -> str | None:
    parent = module.parents[function]
    return parent.name if isinstance(parent, ast.ClassDef) else None


def _parameter(function: Function, name: str) -> int | None:
    """Return the position of a parameter in a call, not counting ``self``; -1 for one that is given by name alone."""
    plain = [each.arg for each in (*function.args.posonlyargs, *function.args.args) if each.arg not in ("self", "cls")]
    if name in plain:
        return plain.index(name)
    return 10_000 if name in [each.arg for each in function.args.kwonlyargs] else None


def _assigned(function: Function, name: str) -> Iterator[ast.expr]:
    """Yield what a function assigns or appends to a variable."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        yield value
                    elif isinstance(target, ast.Tuple):
                        yield from _unpacked(target, value, name)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                yield value
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append" | "extend"), args=[value]) if found == name:
                yield value


def _unpacked(target: ast.Tuple, value: ast.expr, name: str) -> Iterator[ast.expr]:
    for branch in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
        for position, each in enumerate(target.elts):
            if isinstance(each, ast.Name) and each.id == name:
                if isinstance(branch, ast.Tuple):
                    yield branch.elts[position]
                elif isinstance(branch, ast.Call) and position == 1:
                    yield branch


def _given_back(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
            yield node.value


if __name__ == "__main__":
    for message in sorted(Reader().messages().values()):
        print(message.room, "|", message.template, "|", message.raised, "|", message.place)
