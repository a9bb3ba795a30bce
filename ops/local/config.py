"""Reads wrangler.toml and turns it into the plan that ops/local/node/serve.mjs carries out."""

import datetime as dt
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.failure import CommandFailed

PYTHON_314_FROM = dt.date(2026, 9, 8)
"""From this compatibility date on, `python_workers` means the Python that the vendored wheels are built for."""

PYTHON_FLAG = "python_workers"

NOT_RUN_LOCALLY = (
    "kv_namespaces", "queues", "services", "workflows", "hyperdrive", "vectorize", "ai", "assets", "containers",
    "analytics_engine_datasets", "ratelimits", "send_email", "dispatch_namespaces", "mtls_certificates", "pipelines",
)  # fmt: skip


class ConfigInvalid(CommandFailed):
    """wrangler.toml cannot be read, or asks for something that the local edge does not run."""


@dataclass(frozen=True)
class D1:
    """A D1 binding. `migrations` is the folder of its SQL files, or None."""

    binding: str
    name: str
    id: str
    migrations: Path | None


@dataclass(frozen=True)
class WorkerConfig:
    """What the local edge takes from wrangler.toml."""

    path: Path
    name: str
    entry: str
    compatibility_date: str
    compatibility_flags: tuple[str, ...]
    d1: tuple[D1, ...]
    r2: Mapping[str, str]
    durable_objects: Mapping[str, str]
    crons: tuple[str, ...]
    vars: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: Path) -> WorkerConfig:
    """Read a wrangler.toml. Raises ConfigInvalid, with one line that says what is wrong, before anything is started."""
    try:
        raw = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigInvalid(f"there is no {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path.name} is not valid TOML: {error}") from error
    for key in NOT_RUN_LOCALLY:
        if key in raw:
            raise ConfigInvalid(f"{path.name} has `{key}`, which the local edge does not run")
    try:
        config = _config(path, raw)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigInvalid(f"{path.name} is incomplete: {error!r}") from error
    _check_python(config)
    _check_durable_objects(config, raw)
    return config


def _config(path: Path, raw: dict[str, Any]) -> WorkerConfig:
    return WorkerConfig(
        path=path,
        name=raw["name"],
        entry=Path(raw["main"]).stem,
        compatibility_date=str(raw["compatibility_date"]),
        compatibility_flags=tuple(raw.get("compatibility_flags", ())),
        d1=tuple(_d1(path.parent, one) for one in raw.get("d1_databases", ())),
        r2={one["binding"]: one["bucket_name"] for one in raw.get("r2_buckets", ())},
        durable_objects={one["name"]: one["class_name"] for one in raw.get("durable_objects", {}).get("bindings", ())},
        crons=tuple(raw.get("triggers", {}).get("crons", ())),
        vars=raw.get("vars", {}),
    )


def _d1(folder: Path, raw: dict[str, str]) -> D1:
    migrations = raw.get("migrations_dir")
    return D1(raw["binding"], raw["database_name"], raw["database_id"], folder / migrations if migrations else None)


def _check_python(config: WorkerConfig) -> None:
    if PYTHON_FLAG not in config.compatibility_flags:
        raise ConfigInvalid(f"{config.path.name} lacks the compatibility flag {PYTHON_FLAG}")
    try:
        date = dt.date.fromisoformat(config.compatibility_date)
    except ValueError as error:
        raise ConfigInvalid(f"compatibility_date {config.compatibility_date!r} is not a date") from error
    if date < PYTHON_314_FROM:
        raise ConfigInvalid(
            f"compatibility_date {date} means an older Python than the vendored packages are built for; "
            f"it must be {PYTHON_314_FROM} or later"
        )


def _check_durable_objects(config: WorkerConfig, raw: dict[str, Any]) -> None:
    created = {name for one in raw.get("migrations", ()) for name in one.get("new_sqlite_classes", ())}
    for name in config.durable_objects.values():
        if name not in created:
            raise ConfigInvalid(f"{config.path.name}: no migration lists the class {name} in new_sqlite_classes")
