"""What mkdocs has to be told of our classes and docstrings, as an extension of griffe.

Rule 1: an attrs class is called with its fields, so the signature comes from them; a handle is called by nobody.
Rule 2: fields, and properties of one paragraph, stand in a table of the class instead of under headings of their own.
Rule 3: what is private is not shown: base classes, values and defaults that name it, paragraphs about modules of a room.
Rule 4: what stands in single backticks in a docstring is a name, and a link if the reference has it. So is what is raised.
Rule 5: a context manager is shown as one, and not as the generator that it is made of.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from griffe import (
    Attribute,
    Class,
    DocstringAttribute,
    DocstringSectionAttributes,
    DocstringSectionKind,
    Expr,
    ExprCall,
    ExprKeyword,
    ExprName,
    ExprSubscript,
    Extension,
    Function,
    Module,
    Object,
    Parameter,
    ParameterKind,
    Parameters,
)

sys.path.insert(0, str(Path(__file__).parent))  # griffe loads this file by its path

from doc_names import HOMES, ROOMS

NAME = re.compile(r"(?<![`\w])`([A-Za-z_][\w.]*)`(?!`)")
PRIVATE = re.compile(r"(?<![\w\"'])_[A-Za-z]")
LITERAL_BLOCK = re.compile(r"::\n\n((?:(?: {2,}.*)?\n)+)")


class CrecheExtension(Extension):
    """Prepares the loaded package for the reference."""

    def on_package(self, *, pkg: Module, **_: object) -> None:
        """Change the objects of creche, once all of them are loaded."""
        if pkg.path != "creche":
            return
        found = list(_objects(pkg))
        for each in found:
            if isinstance(each, Class):
                _set_constructor(each)
            if each.docstring is not None:
                each.docstring.value = _markdown(each.docstring.value, each)
        for each in found:
            _prepare_sections(each)
        for each in found:
            if isinstance(each, Class):
                _prepare_class(each)
            elif isinstance(each, Function):
                _prepare_function(each)
            elif isinstance(each, Attribute):
                _prepare_attribute(each)


def _objects(owner: Object) -> Iterator[Object]:
    yield owner
    for member in owner.members.values():
        if not member.is_alias:
            yield from _objects(member)


# ---------------------------------------------------------------- classes


def _set_constructor(cls: Class) -> None:
    if str(cls.keywords.get("metaclass", "")) == "NoPublicConstructor":
        cls.members.pop("__init__", None)
    elif "__init__" not in cls.members and any("attrs." in str(decorator.value) for decorator in cls.decorators):
        cls.set_member("__init__", _constructor(cls))


def _prepare_class(cls: Class) -> None:
    cls.bases = [base for base in cls.bases if not _is_private(base)]
    rows = []
    for name, member in list(cls.members.items()):
        if isinstance(member, Attribute) and not name.startswith("_") and member.docstring is not None:
            text = member.docstring.value.strip()
            if "\n\n" not in text:
                rows.append(DocstringAttribute(name, annotation=member.annotation, description=text))
                del cls.members[name]
    if rows and cls.docstring is not None:
        cls.docstring.parsed.append(DocstringSectionAttributes(rows))


def _is_private(base: str | Expr) -> bool:
    """Return whether a base class is ours and not to be found in the reference."""
    path = base.canonical_path if isinstance(base, Expr) else base
    return path.startswith("creche.") and path.rpartition(".")[2] not in HOMES


def _constructor(cls: Class) -> Function:
    """Return the ``__init__`` that attrs makes; annotations and defaults are those of the source."""
    parameters = [Parameter("self", kind=ParameterKind.positional_or_keyword)]
    for field in attrs.fields(_load(cls.path)):
        if field.init:
            source = cls.all_members.get(field.name)
            annotation, value = (source.annotation, source.value) if isinstance(source, Attribute) else (None, None)
            kind = ParameterKind.keyword_only if field.kw_only else ParameterKind.positional_or_keyword
            default = None if field.default is attrs.NOTHING else _default_in(value)
            parameters.append(Parameter(field.alias, annotation=annotation, kind=kind, default=default))
    return Function("__init__", parameters=Parameters(*parameters), parent=cls)


def _default_in(value: str | Expr | None) -> str | Expr:
    """Return what a field has if nothing is given, for readers; the value of a factory is too long for that."""
    if isinstance(value, ExprCall) and str(value.function) == "attrs.field":
        given = {each.name: each.value for each in value.arguments if isinstance(each, ExprKeyword)}
        value = given.get("default")
    return "..." if value is None or PRIVATE.search(str(value)) else value


def _load(path: str) -> object:
    """Return the object of a path, public or private."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


# ---------------------------------------------------------------- functions and values


def _prepare_function(function: Function) -> None:
    for parameter in function.parameters:
        if parameter.default is not None:
            parameter.default = _default_in(parameter.default)
    if any(str(decorator.value) == "asynccontextmanager" for decorator in function.decorators):
        function.labels.discard("async")
        if isinstance(function.returns, ExprSubscript):
            manager = ExprName("AbstractAsyncContextManager", parent=function.module)
            function.returns = ExprSubscript(manager, function.returns.slice)


def _prepare_attribute(attribute: Attribute) -> None:
    if isinstance(attribute.parent, Class):
        attribute.labels -= {"class-attribute", "instance-attribute"}
    if attribute.value is not None and (
        PRIVATE.search(str(attribute.value)) or str(attribute.value).startswith("attrs.")
    ):
        attribute.value = None


# ---------------------------------------------------------------- docstrings


def _markdown(text: str, place: Object) -> str:
    if isinstance(place, Module):
        text = "\n\n".join(paragraph for paragraph in text.split("\n\n") if not PRIVATE.search(paragraph))
    return NAME.sub(lambda found: _link(found, place), LITERAL_BLOCK.sub(_fenced, f"{text}\n"))


def _prepare_sections(each: Object) -> None:
    for section in each.docstring.parsed if each.docstring is not None else ():
        if section.kind is DocstringSectionKind.raises:
            for raised in section.value:
                if HOMES.get(name := str(raised.annotation)) == f"creche.errors.{name}":
                    raised.annotation = ExprName(name, parent=each.package["errors"])  # a door need not import it
        elif section.kind is DocstringSectionKind.yields:
            for item in section.value:
                if isinstance(item.annotation, ExprSubscript):
                    item.annotation = item.annotation.slice


def _fenced(found: re.Match[str]) -> str:
    """Return a literal block of reStructuredText as one of Markdown."""
    lines = found[1].rstrip().splitlines()
    indent = re.match(" *", lines[0])[0]
    within = indent[:-4]
    code = "\n".join([f"{within}{line.removeprefix(indent)}" if line else "" for line in lines])
    return f":\n\n{within}```python\n{code}\n{within}```\n"


def _link(found: re.Match[str], place: Object) -> str:
    target = _target(found[1])
    return found[0] if target in (None, place.path) else f"[`{found[1]}`][{target}]"


def _target(name: str) -> str | None:
    """Return the anchor that a name in a docstring means: of a room, of what it exports, or of a method of that."""
    first, _, rest = name.partition(".")
    path = name if first == "creche" else ".".join(filter(None, [HOMES.get(first, ""), rest]))
    if path in ROOMS or path in HOMES.values():
        return path
    owner, _, method = path.rpartition(".")
    if owner in HOMES.values():
        return path if inspect.isfunction(getattr(_load(owner), method, None)) else owner
    return None
