"""A process that hosts the examples outside the Worker, under names of their own, until killed: remote_host.py URL TOKEN"""

import asyncio
import dataclasses
import sys

from moorage.bodies.registry import Registry
from moorage.client import Moorage
from moorage.client.host import Host

PREFIX = "remote."


async def main(url: str, token: str) -> None:
    bodies = [dataclasses.replace(one, name=f"{PREFIX}{one.name}") for one in Registry.of("examples")]
    async with Moorage(url, token) as moorage:
        # No more at once than a round has: a parked claim of a killed host would take what the next one waits for.
        await Host(moorage, *bodies).serve(concurrency=len(bodies))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
