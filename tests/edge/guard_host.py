"""A process that hosts the guarded bodies outside the Worker, under names of their own: guard_host.py URL TOKEN GRACE"""

import asyncio
import dataclasses
import sys

from moorage.bodies.registry import Registry
from moorage.client import Moorage
from moorage.client.host import Host

PREFIX = "remote."


async def main(url: str, token: str, grace: float) -> None:
    """Serve until SIGTERM; what is in hand then has `grace` seconds to come to its end."""
    bodies = [dataclasses.replace(one, name=f"{PREFIX}{one.name}") for one in Registry.of("tests.edge.bodies")]
    async with Moorage(url, token) as moorage:
        await Host(moorage, *bodies, grace_seconds=grace).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
