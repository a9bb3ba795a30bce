"""Writing the lock files anew from pyproject.toml, requirements/uv.in and package.json."""

from ops.setup import paths
from ops.setup.run import call, say, workspace
from ops.setup.steps import REQUIREMENTS, UV, environment, npm_environment


def relock(upgrade: bool) -> None:
    """Writes every lock file. Without `upgrade`, versions that still satisfy their bounds stay. Raises SetupFailed.

    The Worker is locked first and the host is bound to its versions, so that tests on the host run what is deployed.
    """
    worker = REQUIREMENTS / "worker.txt"
    project = paths.ROOT / "pyproject.toml"
    for_worker = ["--python-version", "3.14", "--python-platform", "wasm32-pyodide2025"]
    for_any_host = ["--universal", "--python-version", "3.11"]
    groups = ["--group", "host", "--group", "dev", "--constraints", str(worker)]
    _compile("uv.txt", [str(REQUIREMENTS / "uv.in"), *for_any_host], upgrade)
    _compile("worker.txt", [str(project), *for_worker], upgrade)
    _compile("host.txt", [str(project), *groups, *for_any_host], upgrade)
    _lock_node_packages(upgrade)


def _compile(name: str, arguments: list[str], upgrade: bool) -> None:
    say(f"  requirements/{name}")
    options = ["--quiet", "--generate-hashes", "--no-emit-index-url", "--no-annotate"]
    command = ["--custom-compile-command", "./moorage setup --relock"]
    newer = ["--upgrade"] if upgrade else []
    out = ["--output-file", str(REQUIREMENTS / name)]
    call([UV, "pip", "compile", *arguments, *options, *command, *newer, *out], environment())


def _lock_node_packages(upgrade: bool) -> None:
    say("  package-lock.json")
    folder = workspace("npm")
    lock = paths.ROOT / "package-lock.json"
    (folder / "package.json").write_bytes((paths.ROOT / "package.json").read_bytes())
    if lock.is_file() and not upgrade:
        (folder / lock.name).write_bytes(lock.read_bytes())
    options = ["--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"]
    call([*paths.npm(), "install", *options], npm_environment(), cwd=folder)
    (folder / lock.name).replace(lock)
