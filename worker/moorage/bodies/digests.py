"""The digest of a body's implementation: its module's source, with the modules of its package that it imports.

Sources are read, never executed: a module is imported once, by the registry. Libraries are not part of it; a body whose
behaviour hangs on a library's version names that in `depends`.
"""

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterator

from moorage.bodies.errors import BodyMisdeclared
from moorage.kernel import canonical


class Sources:
    """Digests of modules of one package, or of each module's own top-level package."""

    def __init__(self, package: str | None = None) -> None:
        self._package = package
        self._texts: dict[str, str | None] = {}
        self._digests: dict[str, str] = {}

    def digest(self, module: str) -> str:
        """SHA-256 over the sources of a module and of what it imports from the same package, transitively.

        Raises BodyMisdeclared when the module's own source cannot be read.
        """
        if module not in self._digests:
            if self._source(module) is None:
                raise BodyMisdeclared(f"the source of {module} cannot be read, so that nothing could pin what executes it")
            found = {name: canonical.digest(self._source(name) or "") for name in sorted(self._closure(module))}
            self._digests[module] = canonical.digest(canonical.dumps(found))
        return self._digests[module]

    def _closure(self, module: str) -> set[str]:
        package = self._package or module.partition(".")[0]
        found, left = {module}, [module]
        while left:
            for name in self._imports(left.pop(), package):
                if name not in found and self._source(name) is not None:
                    found.add(name)
                    left.append(name)
        return found

    def _imports(self, module: str, package: str) -> Iterator[str]:
        """Every name that a module's imports may mean as a module of the package."""
        for node in ast.walk(ast.parse(self._source(module) or "")):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self._base(module, node)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            else:
                continue
            yield from (name for name in names if name == package or name.startswith(f"{package}."))

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        here = sys.modules.get(module)
        parent = getattr(here, "__package__", None) or module.rpartition(".")[0]
        return importlib.util.resolve_name("." * node.level + (node.module or ""), parent)

    def _source(self, module: str) -> str | None:
        if module not in self._texts:
            self._texts[module] = _read(module)
        return self._texts[module]


def _read(module: str) -> str | None:
    """A module's source, by its loader or its file; only of modules that are imported: finding one imports its parents."""
    loaded = sys.modules.get(module)
    if loaded is None:
        return None
    read = getattr(getattr(loaded.__spec__, "loader", None), "get_source", None)
    try:
        text: str | None = inspect.getsource(loaded) if read is None else read(module)
    except (ImportError, OSError, TypeError):
        return None
    return None if text is None else text.replace("\r\n", "\n")
