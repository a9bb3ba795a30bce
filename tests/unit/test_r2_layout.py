"""The bucket's layout as described, against the code that makes keys."""

import tomllib
from collections.abc import Callable

import pytest

from moorage.kernel import ids
from moorage.kernel.errors import BlobMissing
from moorage.kernel.instants import Instant
from moorage.store import blobkeys
from moorage.store.blobkeys import BLOB_PREFIX, RECOVERY_PREFIX, UPLOAD_PREFIX, blob_key, recovery_key, upload_key
from tests.contract.adapters import ROOT

LAYOUT = tomllib.loads((ROOT / "r2_layout" / "layout.toml").read_text())
SHA256 = "0123456789abcdef" * 4
UPLOAD = ids.earliest("upl", Instant(1_800_000_000_000))
IDENTITY = ids.earliest("rcv", Instant(1_800_000_000_000))
BUILDERS: dict[str, tuple[Callable[[str], str], dict[str, str]]] = {
    BLOB_PREFIX: (blob_key, {"sha256": SHA256}),
    UPLOAD_PREFIX: (upload_key, {"name": UPLOAD}),
    RECOVERY_PREFIX: (recovery_key, {"identity": IDENTITY}),
}


@pytest.mark.clause("blobs.key")
def test_every_prefix_is_described() -> None:
    prefixes = {value for name, value in vars(blobkeys).items() if name.endswith("_PREFIX")}
    assert {one["prefix"] for one in LAYOUT["prefix"]} == prefixes == BUILDERS.keys()


@pytest.mark.clause("blobs.key")
@pytest.mark.parametrize("described", LAYOUT["prefix"], ids=lambda one: one["prefix"])
def test_the_described_key_is_the_one_that_is_made(described: dict[str, str]) -> None:
    build, parts = BUILDERS[described["prefix"]]
    [part] = parts.values()
    assert described["key"].format(**parts) == build(part)
    assert build(part).startswith(described["prefix"])
    assert described["written_by"] == f"{build.__module__}.{build.__qualname__}"


@pytest.mark.clause("blobs.key")
@pytest.mark.parametrize("reference", ["", SHA256.upper(), SHA256[:-1], SHA256 + "0", SHA256[:-1] + "\n", "../" + SHA256])
def test_only_a_digest_makes_a_key(reference: str) -> None:
    with pytest.raises(BlobMissing, match="not a SHA-256 digest"):
        blob_key(reference)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "A", "x" * 101, "x\n"])
def test_only_a_name_of_ours_makes_the_key_of_an_upload(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of an upload"):
        upload_key(name)


@pytest.mark.parametrize("identity", ["", "rcv_", IDENTITY.upper(), IDENTITY + "x", "../" + IDENTITY, UPLOAD])
def test_only_an_identity_makes_the_key_of_a_recovery_object(identity: str) -> None:
    with pytest.raises(ValueError, match="not a recovery identity"):
        recovery_key(identity)


def test_no_rule_of_the_bucket_expires_what_the_database_may_refer_to() -> None:
    may_expire = {one["prefix"] for one in LAYOUT["prefix"] if one["expires"]}
    assert not {BLOB_PREFIX, RECOVERY_PREFIX} & may_expire
    for rule in LAYOUT["lifecycle"]:
        assert rule.keys() - {"id", "prefix"} in ({"abort_multipart_days"}, {"expire_days"})
        assert "expire_days" not in rule or rule["prefix"] in may_expire


def test_the_page_tells_every_prefix_and_every_rule() -> None:
    readme = (ROOT / "r2_layout" / "README.md").read_text()
    for one in [*LAYOUT["prefix"], *LAYOUT["lifecycle"]]:
        assert (one.get("id") or one["prefix"]) in readme
    for rule in LAYOUT["lifecycle"]:
        days = "--expire-days" if "expire_days" in rule else "--abort-multipart-days"
        assert f'moorage-blobs {rule["id"]} "{rule["prefix"]}" {days} 1' in readme
