"""Workers as a program of their own."""

import asyncio
import os
import signal
from collections.abc import Sequence

from moorage.client.jobs import Job
from moorage.client.moorage import Moorage
from moorage.client.working import Worker

STOPPING = (signal.SIGTERM, signal.SIGINT)


def run(*jobs: Job, url: str | None = None, token: str | None = None) -> None:
    """Do the jobs until SIGTERM or Ctrl-C, then end what is in hand; a second signal gives it back at once.

    `url` and `token` are those of the environment, MOORAGE_URL and MOORAGE_TOKEN, unless given. Raises KeyError where
    neither names a URL, Problem when a claim is refused for good.
    """
    asyncio.run(_run(jobs, url or os.environ["MOORAGE_URL"], token or os.environ.get("MOORAGE_TOKEN")))


async def _run(jobs: Sequence[Job], url: str, token: str | None) -> None:
    async with Moorage(url, token) as moorage:
        await run_workers([moorage.worker(job) for job in jobs])


async def run_workers(workers: Sequence[Worker]) -> None:
    """Run workers side by side until a signal stops them, or one of them fails, which stops the others too."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for worker in workers:
            worker.stop()

    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if any(task.done() and task.exception() for task in tasks):
            stop()
        await asyncio.gather(*tasks)
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
