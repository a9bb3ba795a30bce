"""Finds the classes that the entry module gives to the platform, by reading the bundle's source.

workerd needs their names, and which handlers they have, before any Python can run.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from ops.failure import CommandFailed

KINDS = {"DurableObject": "durable-object", "WorkerEntrypoint": "worker"}
HANDLERS = ("fetch", "scheduled", "alarm", "webSocketMessage", "webSocketClose", "webSocketError")
DEFAULT = "Default"
"""What Cloudflare calls the class that takes a Python Worker's HTTP requests and cron ticks."""

_HOPS = 20
"""How many imports and base classes are followed before a chain is given up as circular."""


class EntryInvalid(CommandFailed):
    """The entry module cannot be read, or gives the platform nothing to call."""


@dataclass(frozen=True)
class EntryClass:
    """A class of the entry module: its name, `durable-object` or `worker`, and the handlers it defines or inherits."""

    name: str
    kind: str
    handlers: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """A class definition and the module it stands in."""

    module: str
    node: ast.ClassDef


def entry_classes(bundle: Path, entry: str) -> list[EntryClass]:
    """The Durable Object and entrypoint classes bound in the module `entry` of `bundle`, in order of appearance.

    A class may be defined there or imported from another module of the bundle, and may derive from the platform's
    classes through others. Raises EntryInvalid with the place of a syntax error, or when there is no class `Default`.
    """
    source = _Source(bundle)
    classes: list[EntryClass] = []
    for name in source.bound(entry):
        found = source.find(entry, name)
        described = source.describe(found) if found else None
        if described:
            classes.append(EntryClass(name, *described))
    if not any(one.name == DEFAULT and one.kind == KINDS["WorkerEntrypoint"] for one in classes):
        raise EntryInvalid(f"{entry}.py has no class {DEFAULT}(WorkerEntrypoint), which takes the Worker's requests")
    return classes


class _Source:
    """The bundle's modules as syntax trees, read when asked for."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            self._trees[module] = self._parse(module)
        return self._trees[module]

    def _parse(self, module: str) -> ast.Module | None:
        file = self._file(module)
        if file is None:
            return None
        try:
            return ast.parse(file.read_bytes(), str(file))
        except SyntaxError as error:
            place = f"{file.relative_to(self._bundle)}:{error.lineno}"
            raise EntryInvalid(f"{place}: {type(error).__name__}: {error.msg}") from error

    def _file(self, module: str) -> Path | None:
        base = self._bundle.joinpath(*module.split("."))
        return next((file for file in (base / "__init__.py", base.with_name(base.name + ".py")) if file.is_file()), None)

    def _imported(self, module: str, node: ast.ImportFrom, name: str) -> tuple[str, str]:
        """Where `name`, imported into `module` by `node`, comes from: a module and the name there."""
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        if node.level == 0:
            return node.module or "", original
        file = self._file(module)
        # One dot means the package that the module is in, or the package itself within its own __init__.
        up = node.level - (file is not None and file.name == "__init__.py")
        parts = module.split(".")
        package = parts[: len(parts) - up]
        return ".".join([*package, *([node.module] if node.module else [])]), original

    def bound(self, module: str) -> list[str]:
        """Names that the module's top level binds by `class` or `from … import`, each once."""
        tree = self.tree(module)
        if tree is None:
            raise EntryInvalid(f"the bundle has no {module}.py")
        names: list[str] = []
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.ImportFrom):
                names.extend(alias.asname or alias.name for alias in node.names)
        return list(dict.fromkeys(names))

    def find(self, module: str, name: str) -> _Found | None:
        """The definition of `name` as `module` sees it, through imports; None when it lies outside the bundle."""
        for _ in range(_HOPS):
            tree = self.tree(module)
            if tree is None:
                return None
            step = _definition(tree, name)
            if isinstance(step, ast.ClassDef):
                return _Found(module, step)
            if step is None:
                return None
            module, name = self._imported(module, step, name)
        return None

    def describe(self, found: _Found) -> tuple[str, tuple[str, ...]] | None:
        """Kind and handlers of a class, or None when it does not derive from one of the platform's."""
        kind = None
        handlers: set[str] = set()
        todo = [found]
        for one in todo:
            if len(todo) > _HOPS:
                break
            members = (node for node in one.node.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
            handlers.update(node.name for node in members if node.name in HANDLERS)
            for base in one.node.bases:
                name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
                kind = kind or KINDS.get(name)
                parent = None if name in KINDS else self.find(one.module, name)
                if parent is not None:
                    todo.append(parent)
        return None if kind is None else (kind, tuple(name for name in HANDLERS if name in handlers))


def _definition(tree: ast.Module, name: str) -> ast.ClassDef | ast.ImportFrom | None:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return node
    return None
