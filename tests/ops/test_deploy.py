"""The bundle and the deploy checks, with the real wrangler."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops import bundle as bundles
from ops import cli, deploy
from ops.bundle import Bundle, build_bundle
from ops.failure import CommandFailed
from ops.setup import paths

ENTRY = """
from workers import DurableObject, WorkerEntrypoint


class Clock(DurableObject):
    pass


class Default(WorkerEntrypoint):
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project with the real configuration, lock files and vendored packages."""
    root = tmp_path_factory.mktemp("a project")
    for name in ("wrangler.toml", "package-lock.json"):
        shutil.copy2(paths.ROOT / name, root / name)
    shutil.copytree(paths.ROOT / "requirements", root / "requirements")
    (root / "python_modules").symlink_to(paths.PYTHON_MODULES)
    package = root / "worker" / "moorage" / "kernel"
    package.mkdir(parents=True)
    (root / "worker" / "entry.py").write_text(ENTRY)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "ids.py").write_text("SIZE = 26\n")
    return root


@pytest.fixture(scope="module")
def built(project: Path) -> Bundle:
    return build_bundle(project, project / "build" / "bundle")


@pytest.mark.clause("edge.deployable")
def test_the_bundle_holds_every_source_and_every_locked_package(project: Path, built: Bundle) -> None:
    assert built.own_modules == (
        "entry.py",
        "moorage/__init__.py",
        "moorage/kernel/__init__.py",
        "moorage/kernel/ids.py",
    )
    assert (built.path / "moorage" / "kernel" / "ids.py").read_text() == "SIZE = 26\n"
    assert any(name.startswith("python_modules/pydantic_core/") and name.endswith(".so") for name in built.modules)
    assert not [name for name in built.modules if name.endswith(".pyc")]
    deploy.check_bundle(built, project)


@pytest.mark.clause("edge.deployable")
def test_its_size_is_what_its_files_take(built: Bundle) -> None:
    assert built.raw_bytes == sum((built.path / name).stat().st_size for name in built.modules)
    assert built.raw_bytes / 10 < built.gzip_bytes < built.raw_bytes / 2


def test_wrangler_runs_again_only_when_an_input_changed(
    project: Path, built: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Path] = []
    real = bundles._wrangler_dry_run

    def counted(root: Path, out: Path) -> None:
        runs.append(root)
        real(root, out)

    monkeypatch.setattr(bundles, "_wrangler_dry_run", counted)
    assert build_bundle(project, built.path) == built
    assert runs == []

    source = project / "worker" / "moorage" / "kernel" / "ids.py"
    source.write_text("SIZE = 27\n")
    build_bundle(project, built.path)
    assert (built.path / "moorage" / "kernel" / "ids.py").read_text() == "SIZE = 27\n"
    source.write_text("SIZE = 26\n")
    assert build_bundle(project, built.path) == built
    assert len(runs) == 2


def test_another_configuration_brings_its_own_entry_beside_the_same_packages(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "probe"
    other.mkdir()
    (other / "probe.py").write_text(ENTRY)
    (other / "helpers.py").write_text("")
    config = (project / "wrangler.toml").read_text().replace("worker/entry.py", "probe.py")
    (other / "probe.toml").write_text(config)
    built = build_bundle(project, tmp_path / "out", other / "probe.toml")
    assert {"probe.py", "helpers.py", "moorage/kernel/ids.py"} == set(built.own_modules) - {
        "moorage/__init__.py",
        "moorage/kernel/__init__.py",
    }
    assert "python_modules/fastapi/__init__.py" in built.modules


def test_what_wrangler_refuses_is_told_in_its_own_words(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "broken"
    other.mkdir()
    text = 'name = "x"\nmain = "absent.py"\ncompatibility_date = "2026-11-01"\n'
    (other / "wrangler.toml").write_text(text + 'compatibility_flags = ["python_workers"]\n')
    with pytest.raises(CommandFailed, match=r'^wrangler could not make the bundle: [^\n]*"absent\.py" was not found\.$'):
        build_bundle(project, tmp_path / "out", other / "wrangler.toml")
    assert not (tmp_path / "out").exists()


@pytest.mark.clause("edge.deployable")
def test_a_bundle_that_lacks_a_module_or_a_locked_package_is_refused(project: Path, built: Bundle) -> None:
    for lost in ("entry.py", "moorage/kernel/ids.py", "python_modules/httpx-"):
        kept = tuple(name for name in built.modules if not name.startswith(lost))
        with pytest.raises(CommandFailed, match=r"lacks 1 module\(s\): " + lost):
            deploy.check_bundle(replace(built, modules=kept), project)


@pytest.mark.clause("edge.deployable")
def test_a_bundle_over_the_platforms_limit_is_refused_with_both_figures(project: Path, built: Bundle) -> None:
    large = replace(built, gzip_bytes=deploy.PAID_LIMIT + 1)
    with pytest.raises(CommandFailed, match=r"too large: .* 10\.00 MiB gzip, .*10 MiB paid"):
        deploy.check_bundle(large, project)
    assert "needs the paid plan" in deploy.size_line(replace(built, gzip_bytes=deploy.FREE_LIMIT + 1))
    assert "fits the free plan" in deploy.size_line(replace(built, gzip_bytes=deploy.FREE_LIMIT))


@pytest.mark.parametrize("names", [[], ["0002_late.sql"], ["0001_a.sql", "0003_c.sql"], ["0001_a.sql", "0001_b.sql"]])
def test_migrations_must_be_numbered_without_a_gap(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(CommandFailed, match="migration"):
        deploy.check_schema(tmp_path)


def test_the_schema_of_this_checkout_is_in_order() -> None:
    assert deploy.check_schema(paths.ROOT / "d1_schema")[0].startswith("0001_")


def test_nothing_is_deployed_while_the_configuration_names_no_database(tmp_path: Path) -> None:
    config = tmp_path / "wrangler.toml"
    text = (paths.ROOT / "wrangler.toml").read_text()
    config.write_text(text)
    with pytest.raises(CommandFailed, match="d1 create moorage"):
        deploy.check_account_ids(config)
    config.write_text(text.replace(deploy.PLACEHOLDER_DATABASE, "6f1d0c1e-8a58-4c3b-9c6e-2f8f7f0b6a11"))
    deploy.check_account_ids(config)


@pytest.mark.clause("edge.deployable")
def test_a_dry_run_of_this_checkout_needs_no_account_and_prints_the_size_beside_the_limits(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "200"}
    command = [sys.executable, "-m", "ops.cli", "deploy", "--dry-run"]
    done = subprocess.run(command, cwd=paths.ROOT, env=bare, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "MiB gzip" in done.stdout
    assert "10 MiB paid" in done.stdout
    assert "modules of Moorage" in done.stdout
    assert done.stdout.endswith("Dry run: nothing was uploaded.\n")


def test_help_lists_every_subcommand_without_importing_one() -> None:
    script = "import sys; from ops import cli; cli.assemble([]); print([m for m in sys.modules if m.startswith('ops.')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "['ops.failure', 'ops.cli']\n"
    shown = CliRunner().invoke(cli.assemble([]), ["--help"])
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in cli.SUBCOMMANDS)
