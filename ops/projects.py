"""Projects by name: where a deployment is and which credential to ask it with, so that a command needs neither.

They stand in `moorage.toml` of the current folder and in `~/.config/moorage/projects.toml` (or below `XDG_CONFIG_HOME`); the
first file that knows a name decides:

    [projects.shop]
    url = "https://moorage.example.com"
    credential_env = "SHOP_TOKEN"      # the environment variable that holds the credential
    # keyring = "moorage"              # or: the service in the system's keyring, under the project's name

No credential stands in a file.
"""

import importlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from ops.failure import CommandFailed

LOCAL_FILE: Final = "moorage.toml"
_KEYS: Final = frozenset({"url", "credential_env", "keyring"})

ProjectName = Annotated[
    str | None,
    typer.Option(
        "--project", help="A project of moorage.toml or ~/.config/moorage/projects.toml, instead of --url and --token."
    ),
]


class ProjectInvalid(CommandFailed):
    """A project cannot be used; the text says which file or variable to look at."""


@dataclass(frozen=True)
class Project:
    """Where a deployment is, and the credential to ask it with."""

    name: str
    url: str
    token: str = field(repr=False)


def files() -> list[Path]:
    """Where projects are looked for, in order."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return [Path.cwd() / LOCAL_FILE, Path(home) / "moorage" / "projects.toml"]


def where(project: str | None, url: str, token: str | None) -> tuple[str, str | None]:
    """The address and the credential: those of the project, where one is named. Raises ProjectInvalid."""
    if project is None:
        return url, token
    found = load(project)
    return found.url, found.token


def load(name: str) -> Project:
    """A project. Raises ProjectInvalid when no file knows it, or what it says cannot be used."""
    known: list[str] = []
    looked = files()
    for file in looked:
        projects = _projects(file)
        if name in projects:
            return _project(name, projects[name], file)
        known += projects
    there = f"; there are {', '.join(sorted(set(known)))}" if known else ""
    raise ProjectInvalid(f"no project {name!r} in {' or '.join(str(file) for file in looked)}{there}")


def _projects(file: Path) -> Mapping[str, Any]:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ProjectInvalid(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectInvalid(f"{file} is not valid TOML: {error}") from None
    projects = told.get("projects", {})
    if not isinstance(projects, dict):
        raise ProjectInvalid(f"{file}: projects is not a table")
    return projects


def _project(name: str, told: Any, file: Path) -> Project:
    where = f"{file}: project {name!r}"
    if not isinstance(told, dict):
        raise ProjectInvalid(f"{where} is not a table")
    unknown = sorted(told.keys() - _KEYS)
    if unknown:
        raise ProjectInvalid(f"{where} has {unknown[0]!r}, which means nothing; it takes {', '.join(sorted(_KEYS))}")
    wrong = sorted(key for key, value in told.items() if not isinstance(value, str) or not value)
    if wrong:
        raise ProjectInvalid(f"{where}: {wrong[0]} is not a text")
    return Project(name, _url(told.get("url"), where), _credential(name, told, where))


def _url(url: str | None, where: str) -> str:
    if url is None:
        raise ProjectInvalid(f"{where} has no url")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ProjectInvalid(f"{where}: url is to be https://host or http://host, without a credential in it")
    return url.rstrip("/")


def _credential(name: str, told: Mapping[str, str], where: str) -> str:
    variable, service = told.get("credential_env"), told.get("keyring")
    if (variable is None) == (service is None):
        raise ProjectInvalid(f"{where} names its credential by one of credential_env and keyring")
    if variable is not None:
        found = os.environ.get(variable)
        if not found:
            raise ProjectInvalid(f"{where} takes its credential from the variable {variable}, which is not set")
        return found
    return _from_keyring(str(service), name, where)


def _from_keyring(service: str, name: str, where: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        raise ProjectInvalid(
            f"{where} takes its credential from the keyring, and the package `keyring` is not installed; "
            "install it, or use credential_env"
        ) from None
    try:
        found = keyring.get_password(service, name)
    except Exception as error:  # whatever a backend raises
        raise ProjectInvalid(f"{where}: the keyring does not answer: {error}") from None
    if not found:
        raise ProjectInvalid(f"{where}: the keyring has nothing under service {service!r} and user {name!r}")
    return str(found)
