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
        await Host(moorage, *bodies).serve(concurrency=16)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
