"""What set-up makes, in order: uv, the Python environment with Node in it, Node's packages, the Worker's packages."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ops.setup import paths
from ops.setup.run import SetupFailed, Step, call, swap_in, workspace

REQUIREMENTS = paths.ROOT / "requirements"
BOOTSTRAP = paths.STATE / "uv"
UV = BOOTSTRAP / "bin" / "uv"

WORKER_TAGS = [
    *("--python-version", "3.14", "--implementation", "cp"),
    *("--abi", "cp314", "--abi", "abi3", "--abi", "none"),
    *("--platform", "pyemscripten_2026_0_wasm32"),
]
"""What pip is told the Worker's interpreter is: Pyodide 314, which `python_workers` means at wrangler.toml's date."""

ZONES = "zones.zip"
"""The time zones of the package tzdata in one file. As six hundred files they double the time in which a Worker starts."""


def steps() -> list[Step]:
    """Set-up's steps for the Python that runs this. A later step may use what an earlier one made."""
    host = f"{sys.version} {host_python()}"
    return [
        Step("uv", [host, REQUIREMENTS / "uv.txt"], [UV], make_uv),
        Step(
            "Python environment",
            [host, str(paths.ROOT), paths.ROOT / "pyproject.toml", REQUIREMENTS / "host.txt"],
            [paths.VENV / "bin" / "python", paths.VENV / "bin" / "moorage"],
            make_environment,
        ),
        Step(
            "Node packages",
            [REQUIREMENTS / "host.txt", paths.ROOT / "package.json", paths.ROOT / "package-lock.json"],
            [paths.NODE_MODULES / "wrangler", paths.NODE_MODULES / "miniflare"],
            make_node_modules,
        ),
        Step(
            "Worker packages",
            [" ".join(WORKER_TAGS), ZONES, REQUIREMENTS / "worker.txt"],
            [paths.PYTHON_MODULES / "fastapi"],
            make_python_modules,
        ),
    ]


def host_python() -> str:
    """The Python that runs this; the one behind it when it is that of an environment, which set-up may be replacing."""
    return getattr(sys, "_base_executable", None) or sys.executable


def environment() -> dict[str, str]:
    """The caller's environment without what would send packages elsewhere; mirrors and certificates stay."""
    unwanted = {
        *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"),
        *("UV_PYTHON", "UV_TARGET", "UV_PREFIX", "UV_PROJECT", "UV_WORKING_DIRECTORY", "UV_OFFLINE"),
    }
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    return env | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def make_uv(_in_place: bool) -> None:
    """uv and a pip of known version, in a small environment of their own."""
    if not (find_spec("ensurepip") or find_spec("pip")):
        raise SetupFailed(f"{host_python()} has no pip and no ensurepip (Debian and Ubuntu: install python3-venv)")
    folder = workspace("uv") / "env"
    own_pip = find_spec("ensurepip") is not None
    without = [] if own_pip else ["--without-pip"]
    call([host_python(), "-m", "venv", *without, folder], environment())
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip"] if own_pip else [host_python(), "-m", "pip", "--python", python]
    options: list[str | Path] = ["--no-input", "--require-hashes", "--only-binary=:all:", "-r", REQUIREMENTS / "uv.txt"]
    call([*pip, "install", *options], environment())
    swap_in(folder, BOOTSTRAP)


def make_environment(in_place: bool) -> None:
    """.venv with the locked host packages, and the `moorage` command that runs from this checkout."""
    env = environment()
    python = paths.VENV / "bin" / "python"
    if not in_place or not _is_this_python(python):
        call([UV, "venv", "--clear", "--quiet", "--python", host_python(), paths.VENV], env)
    into: list[str | Path] = ["--quiet", "--python", python]
    call([UV, "pip", "sync", *into, "--require-hashes", REQUIREMENTS / "host.txt"], env)
    call([UV, "pip", "install", *into, "--no-deps", "--no-build-isolation", "--editable", paths.ROOT], env)


def _is_this_python(python: Path) -> bool:
    return os.path.realpath(python) == os.path.realpath(host_python())


def make_node_modules(_in_place: bool) -> None:
    """node_modules from package-lock.json. No install script is run: none of ours needs one."""
    folder = workspace("npm")
    for name in ("package.json", "package-lock.json"):
        (folder / name).write_bytes((paths.ROOT / name).read_bytes())
    env = npm_environment()
    call([*paths.npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], env, cwd=folder)
    swap_in(folder / "node_modules", paths.NODE_MODULES)


def npm_environment() -> Mapping[str, str]:
    return environment() | {
        "PATH": paths.node_env()["PATH"],
        "npm_config_update_notifier": "false",
        "npm_config_omit_lockfile_registry_resolved": "true",
    }


def make_python_modules(_in_place: bool) -> None:
    """python_modules: the Worker's locked wheels, unpacked for its interpreter and not for this one."""
    folder = workspace("worker") / "python_modules"
    install: list[str | Path] = [
        *("install", "--no-input", "--quiet", "--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:"),
        *WORKER_TAGS,
        *("--target", folder, "-r", REQUIREMENTS / "worker.txt"),
    ]
    call([BOOTSTRAP / "bin" / "python", "-m", "pip", *install], environment())
    pack_zones(folder / "tzdata")
    swap_in(folder, paths.PYTHON_MODULES)


def pack_zones(tzdata: Path) -> None:
    """Put the zones of an unpacked tzdata into ZONES, each under its name, and take their files away."""
    with ZipFile(tzdata / ZONES, "w", ZIP_DEFLATED) as packed:
        for name in (tzdata / "zones").read_text().split():
            packed.writestr(ZipInfo(name), (tzdata / "zoneinfo" / name).read_bytes(), ZIP_DEFLATED)
    shutil.rmtree(tzdata / "zoneinfo")
