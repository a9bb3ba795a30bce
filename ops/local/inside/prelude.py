"""Runs once, before the memory snapshot is taken: what it imports and sets is there when an interpreter starts."""

import gc
import importlib
import sys

# Parts of the standard library that FastAPI, pydantic and httpx import. None keeps anything random or timed at module
# level but `random`, which is seeded anew after each start.
_MODULES = """
    abc argparse ast asyncio asyncio.events base64 binascii calendar codecs collections.abc colorsys
    concurrent.futures contextlib contextvars copy dataclasses datetime decimal difflib email email.message
    email.parser email.utils encodings.cp437 enum errno fnmatch fractions functools gc gettext glob hashlib heapq
    hmac html http http.client http.cookies http.cookiejar importlib.metadata importlib.metadata._adapters
    importlib.resources inspect io ipaddress itertools json keyword linecache locale logging math mimetypes numbers
    operator os pathlib pickle pkgutil posixpath pyodide.http queue random re secrets select selectors shlex shutil
    signal socket ssl stat statistics string struct subprocess tempfile textwrap threading time tokenize traceback
    types typing unicodedata urllib.error urllib.parse urllib.request uuid warnings weakref zipfile zlib zoneinfo
""".split()

for _name in _MODULES:
    try:
        importlib.import_module(_name)
    except ImportError:
        # A module that this build of Python leaves out is missed by whoever imports it.
        continue

sys.path = ["/session/metadata", "/session/metadata/python_modules", *filter(None, sys.path), "/session/edge"]
# Bytecode has a place of its own, so that the bundle lies there exactly as it was written.
sys.pycache_prefix = "/session/bytecode"
sys.dont_write_bytecode = False
# What lives now lives for good: the collector need not look at it again, and the search for JavaScript objects that the
# Worker leaves behind sees only what came later.
gc.collect()
gc.freeze()
