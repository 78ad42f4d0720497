"""Syntax trees of creche: its modules, and the few questions that the reader of messages asks about them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen(eq=False)
class Module:
    """A module that was read."""

    file: str
    """Its path in the package."""
    tree: ast.Module
    """What it says."""
    parents: dict[ast.AST, ast.AST]
    """Which node holds which."""

    @property
    def room(self) -> str:
        """The room it belongs to."""
        parts = self.file.removesuffix(".py").split("/")
        return "models.adapters" if parts[:2] == ["models", "adapters"] else parts[0]

    def functions_around(self, node: ast.AST) -> Iterator[Function]:
        """Yield the functions that a node stands in, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, Function):
                yield node

    def class_of(self, function: Function) -> str:
        """Return the name of the class that a method is of; empty for a function."""
        parent = self.parents[function]
        return parent.name if isinstance(parent, ast.ClassDef) else ""


def read_module(source: Path, path: Path) -> Module:
    """Return a module of the package at ``source``."""
    tree = ast.parse(path.read_text("utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Module(str(path.relative_to(source)), tree, parents)


def name_of(node: ast.expr) -> str:
    """Return the last name of what is called or derived from."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return what a call gives for a parameter, by its name or at its position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = call.args[: position + 1]
    if len(plain) <= position or any(isinstance(each, ast.Starred) for each in plain):
        return None
    return plain[position]


def position_of(function: Function, name: str) -> int | None:
    """Return the position of a parameter in a call, not counting ``self``; a large one if it is given by name alone."""
    plain = [each.arg for each in (*function.args.posonlyargs, *function.args.args) if each.arg not in ("self", "cls")]
    if name in plain:
        return plain.index(name)
    return 10_000 if name in [each.arg for each in function.args.kwonlyargs] else None


def assigned(function: Function, name: str) -> Iterator[ast.expr]:
    """Yield what a function assigns or appends to a variable."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        yield value
                    elif isinstance(target, ast.Tuple):
                        yield from _unpacked(target, value, name)
            case (
                ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=found), value=value)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append" | "extend"), args=[value])
            ) if found == name:
                yield value


def _unpacked(target: ast.Tuple, value: ast.expr, name: str) -> Iterator[ast.expr]:
    for branch in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
        for position, each in enumerate(target.elts):
            if isinstance(each, ast.Name) and each.id == name:
                if isinstance(branch, ast.Tuple):
                    yield branch.elts[position]
                elif isinstance(branch, ast.Call) and position == 1:  # the second of a pair that is returned
                    yield branch


def given_back(function: Function) -> Iterator[ast.expr]:
    """Yield what a function returns or yields."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
            yield node.value


def super_call(cls: ast.ClassDef | None) -> ast.Call | None:
    """Return the call of ``super().__init__`` in a class of errors, if it has one of its own."""
    for node in ast.walk(cls) if cls is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return node
    return None


def place_for(node: ast.expr) -> str:
    """Return a place to fill with what an expression gives, such as ``{name}``."""
    return "{" + _word(node) + "}"


def _word(node: ast.expr) -> str:
    """Return the last name in an expression that says something."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            word = name.strip("_")
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            word = name
        case ast.Call(args=[first]) | ast.Call(func=ast.Name(id="map"), args=[_, first]) | ast.Call(func=first):
            word = _word(first)
        case ast.BoolOp(values=[first, *_]) | ast.BinOp(left=first):
            word = _word(first)
        case (
            ast.Subscript(value=first) | ast.Starred(value=first) | ast.Await(value=first) | ast.NamedExpr(value=first)
        ):
            word = _word(first)
        case ast.ListComp(generators=[first, *_]) | ast.GeneratorExp(generators=[first, *_]):
            word = _word(first.iter)
        case _:
            word = "which"
    return word
