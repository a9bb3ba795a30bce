"""A folder of bodies: what `--bodies DIR` puts into the Worker, checked before anything is bundled.

The folder becomes the package `bodies` beside the Worker's entry module. It is imported here, on this machine's Python, in a
process of its own, so that what is wrong with it is told with file and line before a Worker fails to start.
"""

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.bundle import BODIES, VENDORED, Bundle, build_bundle
from ops.failure import CommandFailed
from ops.setup import paths

BodiesOption = Annotated[
    Path | None,
    typer.Option("--bodies", help="A folder of bodies, which takes the place of worker/bodies.", metavar="DIR"),
]

FOLDER_VARIABLE = "MOORAGE_BODIES"
"""Names the folder of bodies for the edges of a test run."""

_SECONDS = 60
_INSIDE = """
import json, sys, traceback
try:
    from moorage.bodies.registry import Registry
    print(json.dumps({"bodies": sorted(one.name for one in Registry.of("bodies").infos())}))
except BaseException as error:
    trace = traceback.extract_tb(error.__traceback__)
    own = [(f.filename, f.lineno) for f in trace if "/bodies/" in f.filename and "/moorage/" not in f.filename]
    print(json.dumps({"error": f"{type(error).__name__}: {error}", "place": own[-1] if own else None}))
"""


class BodiesInvalid(CommandFailed):
    """A folder of bodies cannot be put into the Worker; the text says what is wrong, with file and line."""


def check_bodies(folder: Path) -> list[str]:
    """The names of the bodies in a folder. Raises BodiesInvalid unless it can be imported and has at least one."""
    if not folder.is_dir():
        raise BodiesInvalid(f"there is no folder {folder}")
    sources = sorted(file for file in folder.rglob("*.py") if "__pycache__" not in file.parts)
    if not sources:
        raise BodiesInvalid(f"{folder} has no Python file")
    for source in sources:
        _check_imports(folder, source)
    found = _import(folder)
    if "error" in found:
        place = found.get("place")
        where = f"{_shown(folder, place[0])}:{place[1]}: " if place else ""
        raise BodiesInvalid(f"{where}{found['error']}")
    if not found["bodies"]:
        raise BodiesInvalid(f"{folder} registers no body: decorate a function with @body")
    names: list[str] = found["bodies"]
    return names


def bundle_with(folder: Path) -> Bundle:
    """The bundle of the Worker with the bodies of a folder, made anew only when something changed."""
    name = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    return build_bundle(paths.ROOT, paths.ROOT / "build" / "with-bodies" / name, bodies=folder)


def _import(folder: Path) -> dict[str, Any]:
    """What an import of the folder as the package `bodies` gives, in a process that may fail in any way."""
    with tempfile.TemporaryDirectory() as work:
        package = Path(work) / BODIES
        shutil.copytree(folder, package, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        (package / "__init__.py").touch()
        env = os.environ | {"PYTHONPATH": f"{work}{os.pathsep}{paths.ROOT / 'worker'}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", _INSIDE]
        try:
            done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise BodiesInvalid(f"{folder} could not be imported within {_SECONDS} s") from None
    lines = done.stdout.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        said = " ".join(done.stderr.split()[-40:]) or f"status {done.returncode}"
        raise BodiesInvalid(f"{folder} could not be imported: {said}") from None
    return found


def _check_imports(folder: Path, source: Path) -> None:
    """Refuse what this machine may have and the Worker has not: a module that is neither Python's own, nor vendored."""
    where = source.relative_to(folder)
    try:
        tree = ast.parse(source.read_bytes(), str(source))
    except SyntaxError as error:
        raise BodiesInvalid(f"{where}:{error.lineno}: {type(error).__name__}: {error.msg}") from None
    for node in tree.body:
        for name in _imported(node):
            top = name.partition(".")[0]
            if top not in _known() and not _vendored(top):
                raise BodiesInvalid(f"{where}:{node.lineno}: the Worker has no module {top}")


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


def _known() -> frozenset[str]:
    return sys.stdlib_module_names | {"moorage", BODIES, "js", "pyodide", "workers"}


def _vendored(top: str) -> bool:
    folder = paths.ROOT / VENDORED
    return (folder / top).is_dir() or (folder / f"{top}.py").is_file() or any(folder.glob(f"{top}.*.so"))


def _shown(folder: Path, file: str) -> str:
    """A file of the package as its author knows it."""
    _, _, inside = file.rpartition(f"/{BODIES}/")
    return inside if (folder / inside).is_file() else Path(file).name
