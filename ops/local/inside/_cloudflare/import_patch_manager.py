"""Hooks that run around the import of named modules while the Worker starts up.

The names are the platform's; what they do is read off how workers-runtime-sdk uses them.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[Any], AbstractContextManager[Any]]
After = Callable[[ModuleType], None]

_create: dict[str, list[Patch]] = {}
_exec: dict[str, list[Patch]] = {}
_after_snapshot: dict[str, list[After]] = {}
_before_first_request: dict[str, list[After]] = {}


def _registrar(registry: dict[str, list[Any]]) -> Callable[[str], Callable[[Any], Any]]:
    def register(name: str) -> Callable[[Any], Any]:
        def keep(patch: Any) -> Any:
            registry.setdefault(name, []).append(patch)
            return patch

        return keep

    return register


register_create_patch = _registrar(_create)
register_exec_patch = _registrar(_exec)
register_after_snapshot = _registrar(_after_snapshot)
register_before_first_request = _registrar(_before_first_request)


def block_calls(module: ModuleType, *, allowlist: Iterable[str] = ()) -> None:
    """Make the module's public functions refuse to run until requests begin, except those in `allowlist`."""
    from _edge import entropy

    allowed = set(allowlist)
    for name, value in list(vars(module).items()):
        if callable(value) and not isinstance(value, type) and not name.startswith("_") and name not in allowed:
            entropy.guard(module, name)


class _PatchedLoader(Loader):
    def __init__(self, loader: Any, name: str) -> None:
        self._loader = loader
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        with ExitStack() as stack:
            for patch in _create.get(self._name, ()):
                stack.enter_context(patch(spec))
            created: ModuleType | None = self._loader.create_module(spec)
            return created

    def exec_module(self, module: ModuleType) -> None:
        with ExitStack() as stack:
            for patch in _exec.get(self._name, ()):
                stack.enter_context(patch(module))
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _PatchingFinder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in _exec and fullname not in _create:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchedLoader(spec.loader, fullname)
                return spec
        return None


_finder = _PatchingFinder()


def install() -> None:
    """Begin to apply the patches. The platform stops before the first request, and so does `uninstall`."""
    sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Import modules unpatched from here on, and run what was to run once start-up is over."""
    sys.meta_path.remove(_finder)
    for registry in (_after_snapshot, _before_first_request):
        for name, hooks in registry.items():
            for hook in hooks:
                if name in sys.modules:
                    hook(sys.modules[name])
