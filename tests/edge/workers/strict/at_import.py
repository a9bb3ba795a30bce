"""What this Worker saw while it was imported, and what it kept from then."""

import asyncio
import time
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


class Kept(BaseModel):
    """A model at module level survives a snapshot."""

    number: int
