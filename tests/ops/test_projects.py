"""Projects by name: where they stand, what is wrong with one, and that a command asks the right deployment."""

import sys
from pathlib import Path
from types import ModuleType

import httpx
import pytest
import respx
from typer.testing import CliRunner, Result

from ops import projects
from ops.cli import assemble
from ops.projects import ProjectInvalid

URL = "https://shop.example.test"
IDENTITY = {
    "identity": "rcv_01kb1y0z3w5q9v8d7c6b5a4m3n",
    "project": "moorage",
    "schema": 4,
    "generation": 2,
    "object_key": "recovery/rcv_01kb1y0z3w5q9v8d7c6b5a4m3n.json",
    "created_at": "2026-11-29T10:00:00.000Z",
    "updated_at": "2026-11-29T10:00:00.000Z",
}
CHECKED = {
    "ok": True,
    "project": "moorage",
    "profile": "cloudflare-d1-r2",
    "state": "bound",
    "identity": IDENTITY,
    "findings": [{"name": "recovery identity", "ok": True, "detail": "rcv_x, generation 2"}],
    "rows": {"guards": 0},
}
SICK = {**CHECKED, "ok": False, "findings": [{"name": "guards", "ok": False, "detail": "2 do not belong"}]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, and a configuration folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MOORAGE_URL", "MOORAGE_TOKEN", "SHOP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def tell(home: Path, text: str, *, shared: bool = False) -> None:
    file = home / "config" / "moorage" / "projects.toml" if shared else home / "here" / "moorage.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(assemble(list(arguments)), list(arguments))


SUMMARY = {
    "open": 0,
    "by_class": {"replay-safe": 0, "receipt-required": 0, "unknown": 0},
    "oldest_admitted_at": None,
    "oldest_seconds": None,
}
SHOP = f'[projects.shop]\nurl = "{URL}/"\ncredential_env = "SHOP_TOKEN"\n'


def test_a_project_names_its_address_and_the_variable_of_its_credential(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(home, SHOP)
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    found = projects.load("shop")
    assert (found.url, found.token) == (URL, "secret")
    assert "secret" not in repr(found)
    assert projects.where(None, "http://here", "t") == ("http://here", "t")


def test_the_current_folder_decides_before_the_shared_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    tell(home, SHOP.replace("shop.example", "other.example") + SHOP.replace("projects.shop", "projects.two"), shared=True)
    assert projects.load("shop").url == "https://other.example.test"
    tell(home, SHOP)
    assert projects.load("shop").url == URL
    assert projects.load("two").url == URL


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no project 'shop' in .*moorage.toml or .*projects.toml$"),
        ('[projects.other]\nurl = "x"\n', "there are other$"),
        ("[projects", "is not valid TOML"),
        ("projects = 1", "projects is not a table"),
        ("[projects]\nshop = 1", "is not a table"),
        ('[projects.shop]\ncredential_env = "SHOP_TOKEN"', "has no url"),
        (SHOP + 'token = "secret"', "has 'token', which means nothing"),
        (SHOP.replace("https:", "ftp:"), "url is to be https://host"),
        (SHOP.replace("https://", "https://me:secret@"), "without a credential in it"),
        ('[projects.shop]\nurl = 3\ncredential_env = "SHOP_TOKEN"', "url is not a text"),
        (f'[projects.shop]\nurl = "{URL}"', "one of credential_env and keyring"),
        (SHOP + 'keyring = "moorage"', "one of credential_env and keyring"),
        (SHOP, "variable SHOP_TOKEN, which is not set"),
    ],
)
def test_what_is_wrong_with_a_project_is_said(home: Path, text: str, fault: str) -> None:
    tell(home, text)
    with pytest.raises(ProjectInvalid, match=fault) as raised:
        projects.load("shop")
    assert "secret" not in str(raised.value)


KEYRING = f'[projects.shop]\nurl = "{URL}"\nkeyring = "moorage"\n'


def test_a_credential_may_stand_in_the_keyring(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(home, KEYRING)
    keyring = ModuleType("keyring")
    kept = {("moorage", "shop"): "secret"}
    keyring.get_password = lambda service, name: kept.get((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    assert projects.load("shop").token == "secret"
    kept.clear()
    with pytest.raises(ProjectInvalid, match="nothing under service 'moorage' and user 'shop'"):
        projects.load("shop")

    def locked(service: str, name: str) -> str:
        raise RuntimeError("locked")

    keyring.get_password = locked  # type: ignore[attr-defined]
    with pytest.raises(ProjectInvalid, match="does not answer: locked"):
        projects.load("shop")


def test_without_the_library_the_keyring_is_said_to_be_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(home, KEYRING)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ProjectInvalid, match="`keyring` is not installed"):
        projects.load("shop")


@pytest.fixture
def shop(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(home, SHOP)
    monkeypatch.setenv("SHOP_TOKEN", "secret")


@pytest.mark.usefixtures("shop")
@respx.mock
def test_check_asks_the_project_with_its_credential() -> None:
    asked = respx.get(f"{URL}/storage").mock(httpx.Response(200, json=CHECKED))
    respx.get(f"{URL}/guards/summary").mock(httpx.Response(200, json=SUMMARY))
    done = run("storage", "check", "--project", "shop")
    assert (done.exit_code, "recovery identity" in done.stdout) == (0, True)
    assert asked.calls.last.request.headers["authorization"] == "Bearer secret"


@pytest.mark.usefixtures("shop")
@respx.mock
def test_check_ends_with_1_when_something_is_not_well() -> None:
    respx.get(f"{URL}/storage").mock(httpx.Response(200, json=SICK))
    respx.get(f"{URL}/guards/summary").mock(httpx.Response(200, json=SUMMARY))
    done = run("storage", "check", "--project", "shop")
    assert (done.exit_code, "NOT WELL" in done.stdout) == (1, True)
    as_json = run("storage", "check", "--project", "shop", "--json")
    assert (as_json.exit_code, '"ok":false' in as_json.stdout) == (1, True)


@pytest.mark.usefixtures("shop")
@respx.mock
def test_check_shows_another_schema_as_what_it_found() -> None:
    problem = {"code": "ExecutionSchemaIncompatible", "detail": "the database lacks the tables guards", "status": 503}
    respx.get(f"{URL}/storage").mock(httpx.Response(503, json={**problem, "tag": "Incompatible", "retryable": False}))
    done = run("storage", "check", "--project", "shop")
    assert done.exit_code == 1
    assert "schema" in done.stdout
    assert "lacks the tables guards" in done.stdout


@pytest.mark.usefixtures("shop")
@respx.mock
def test_initialize_says_what_it_bound_and_gives_up_only_what_is_named() -> None:
    asked = respx.post(f"{URL}/storage/initialize").mock(
        httpx.Response(200, json={"initialized": True, "identity": IDENTITY})
    )
    done = run("storage", "initialize", "--project", "shop")
    assert (done.exit_code, done.stdout.startswith("bound: rcv_01kb1y0z3w5q9v8d7c6b5a4m3n, generation 2")) == (0, True)
    assert asked.calls.last.request.content == b"{}"
    run("storage", "initialize", "--project", "shop", "--give-up", "rcv_old")
    assert asked.calls.last.request.content == b'{"give_up":"rcv_old"}'


@pytest.mark.usefixtures("shop")
@respx.mock
def test_a_refused_initialization_is_told_with_its_way_out() -> None:
    problem = {"code": "ExecutionRecoveryMismatch", "detail": "restore what is missing", "status": 503}
    respx.post(f"{URL}/storage/initialize").mock(
        httpx.Response(503, json={**problem, "tag": "Incompatible", "retryable": False})
    )
    done = run("storage", "initialize", "--project", "shop")
    assert done.exit_code == 1
    assert "ExecutionRecoveryMismatch" in done.stderr


def test_a_deployment_to_an_unknown_project_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def vendor() -> None:
        raise AssertionError("it began")

    monkeypatch.setattr("ops.deploy.vendor", vendor)
    done = run("deploy", "--project", "nope")
    assert isinstance(done.exception, ProjectInvalid)
