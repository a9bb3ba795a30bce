"""The shell worker of docs/workers.md, against a curl that takes its time: no signal loses a claim."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.contract.adapters import ROOT as CHECKOUT

CURL = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *settle*) exit 0 ;; esac
sleep 1
echo '{"claims":[{"record":{"id":"rec_1"},"lease":{"epoch":7}}]}'
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_what_was_claimed_when_a_signal_came_to_the_whole_group_is_settled(tmp_path: Path, sent: signal.Signals) -> None:
    page = (CHECKOUT / "docs" / "workers.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```bash\n(# worker\.sh\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    curl, calls = tmp_path / "curl", tmp_path / "calls"
    curl.write_text(CURL)
    curl.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "CALLS": str(calls), "MOORAGE_URL": "http://x", "MOORAGE_TOKEN": "t"}
    with subprocess.Popen(["bash", "-c", program], env=env, start_new_session=True) as process:
        try:
            end = time.monotonic() + 10
            while not calls.exists() and time.monotonic() < end:
                time.sleep(0.01)
            os.killpg(process.pid, sent)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
    claim, settle = calls.read_text().splitlines()
    assert "/claims -d" in claim
    assert '/claims/rec_1/settle -d {"epoch":7' in settle
