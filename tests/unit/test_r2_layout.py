"""The bucket's layout as described, against the code that makes keys."""

import tomllib

import pytest

from moorage.kernel.errors import BlobMissing
from moorage.store.blobkeys import BLOB_PREFIX, blob_key
from tests.contract.adapters import ROOT

LAYOUT = tomllib.loads((ROOT / "r2_layout" / "layout.toml").read_text())
SHA256 = "0123456789abcdef" * 4


@pytest.mark.clause("blobs.key")
def test_the_described_key_is_the_one_that_is_made() -> None:
    [blobs] = LAYOUT["prefix"]
    assert blobs["prefix"] == BLOB_PREFIX
    assert blobs["key"].format(sha256=SHA256) == blob_key(SHA256)
    assert blobs["written_by"] == f"{blob_key.__module__}.{blob_key.__qualname__}"


@pytest.mark.clause("blobs.key")
@pytest.mark.parametrize("reference", ["", SHA256.upper(), SHA256[:-1], SHA256 + "0", SHA256[:-1] + "\n", "../" + SHA256])
def test_only_a_digest_makes_a_key(reference: str) -> None:
    with pytest.raises(BlobMissing, match="not a SHA-256 digest"):
        blob_key(reference)


def test_no_rule_of_the_bucket_expires_what_the_database_may_refer_to() -> None:
    for rule in LAYOUT["lifecycle"]:
        assert set(rule) == {"id", "prefix", "abort_multipart_days"}
    readme = (ROOT / "r2_layout" / "README.md").read_text()
    for one in [*LAYOUT["prefix"], *LAYOUT["lifecycle"]]:
        assert (one.get("id") or one["prefix"]) in readme
