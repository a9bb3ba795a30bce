"""The bodies of the package beside the entry module, as requests and the Clock see them."""

from collections.abc import Sequence
from typing import Any, Final

from moorage.bodies.registry import Registry
from moorage.runs.model import BodyInfo

REGISTRY: Final = Registry.of("bodies")


class WorkerBodies:
    """What the Worker itself executes."""

    def get(self, name: str) -> BodyInfo | None:
        return REGISTRY.info(name) if name in REGISTRY else None

    def infos(self) -> Sequence[BodyInfo]:
        return REGISTRY.infos()

    def check_input(self, name: str, value: Any) -> None:
        REGISTRY.check_input(name, value)
