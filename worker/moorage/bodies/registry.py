"""The bodies of a package, found by importing it; their inputs, schemas and builds (clause runs.body-pins)."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from moorage.bodies import guard
from moorage.bodies.declare import Body
from moorage.bodies.digests import Sources
from moorage.bodies.errors import BodyMisdeclared
from moorage.bodies.values import dump, input_refused
from moorage.kernel import canonical
from moorage.kernel.errors import BodyUnknown, InputInvalid
from moorage.runs.model import BodyInfo, Build


class Registry:
    """Bodies by name. What `of` found is fixed; two bodies of one name are refused."""

    def __init__(self, bodies: Iterable[Body], package: str | None = None) -> None:
        guard.install()
        self._bodies: dict[str, Body] = {}
        self._infos: dict[str, BodyInfo] = {}
        self._sources = Sources(package)
        for one in bodies:
            known = self._bodies.setdefault(one.name, one)
            if known is not one:
                raise BodyMisdeclared(f"two bodies are named {one.name!r}: in {known.module} and in {one.module}")

    @classmethod
    def of(cls, package: str) -> "Registry":
        """The bodies that a package and the modules below it declare. Imports each of them, once.

        Raises BodyMisdeclared, and whatever importing raises.
        """
        guard.install()
        root = importlib.import_module(package)
        modules = [root, *(importlib.import_module(name) for name in _below(root))]
        found = [one for module in modules for one in vars(module).values() if isinstance(one, Body)]
        # A body that another module imports is found twice, and is one.
        return cls({id(one): one for one in found}.values(), package)

    def __iter__(self) -> Iterator[Body]:
        return iter(self._bodies.values())

    def __contains__(self, name: object) -> bool:
        return name in self._bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def get(self, name: str) -> Body:
        """A body. Raises BodyUnknown."""
        found = self._bodies.get(name)
        if found is None:
            raise BodyUnknown()
        return found

    def build(self, name: str) -> Build:
        """What executes a body: digests of its source, its dependencies and its configuration. Raises BodyUnknown."""
        return self.info(name).build

    def builds(self) -> dict[str, str]:
        """The digest of each body's build, by name: what a host of these bodies may take."""
        return {name: self.build(name).digest for name in self._bodies}

    def info(self, name: str, host: Any = "worker") -> BodyInfo:
        """What others see of a body. Raises BodyUnknown."""
        info = self._infos.get(f"{host} {name}")
        if info is None:
            info = self._infos[f"{host} {name}"] = self._described(self.get(name), host)
        return info

    def infos(self, host: Any = "worker") -> list[BodyInfo]:
        """What others see of all bodies, by name."""
        return [self.info(name, host) for name in sorted(self._bodies)]

    def check_input(self, name: str, value: Any) -> None:
        """Raises BodyUnknown, and InputInvalid with a JSON Pointer to each fault; nothing of the value is repeated.

        A validator of the author's that breaks off has refused the value too: no run of it could begin.
        """
        found = self.get(name)
        if not found.takes_input:
            if value not in (None, {}):
                raise InputInvalid(
                    f"the body {name!r} takes no input", errors=[{"pointer": "", "message": "no input is taken"}]
                )
            return
        try:
            found.input.load(canonical.compact(value))
        except ValidationError as error:
            raise input_refused(error) from None
        except Exception as error:
            broke = f"the body's own check of it broke off with {type(error).__name__}"
            raise InputInvalid(f"the input does not fit: {broke}", errors=[{"pointer": "", "message": broke}]) from error

    def _described(self, one: Body, host: Any) -> BodyInfo:
        build = Build(
            body=one.name,
            implementation=self._sources.digest(one.module),
            dependencies={name: canonical.digest(identity) for name, identity in one.depends.items()},
            configuration=None if one.config is None else canonical.digest(dump(dict(one.config))),
        )
        return BodyInfo(
            name=one.name,
            host=host,
            build=build,
            effects=tuple(one.effects),
            description=one.description,
            input_schema=one.input.schema() if one.takes_input else None,
            result_schema=one.result.schema(result=True),
        )


def _below(root: ModuleType) -> list[str]:
    paths = getattr(root, "__path__", None)
    return [] if paths is None else [found.name for found in pkgutil.walk_packages(paths, f"{root.__name__}.")]
