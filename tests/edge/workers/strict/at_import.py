"""What this Worker saw while it was imported, and what it kept from then."""

import asyncio
import time
from pathlib import Path
from random import choice

import httpx
import js
from pydantic import BaseModel
from workers import env

CLOCK = time.time()
MONOTONIC = time.monotonic()
CHOICE = choice  # refused at import, and works in a request all the same
DATABASE = env.DB
FETCH = js.fetch
FROM_ENTRIES = js.Object.fromEntries
LOCK = asyncio.Lock()
CLIENT = httpx.AsyncClient
COUNTER = [0]
SCRATCH = Path("/tmp/written-at-import")
SCRATCH.write_text("gone in requests")
try:
    Path(__file__).with_name("written.py").write_text("refused")
except PermissionError:
    CODE_IS_READ_ONLY = True
else:
    CODE_IS_READ_ONLY = False


class Kept(BaseModel):
    """A model at module level survives a snapshot."""

    number: int
