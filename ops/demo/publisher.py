"""An edge client as a process of its own: it publishes records one by one, through any crash of the other side.

A request without an answer may or may not have been carried out, so it is sent again under the same Idempotency-Key.
One JSON line of instructions comes in; one goes out for each acknowledged record. It ends when all are, or when its
standard input does.
"""

import json
import select
import sys
from typing import Any

from ops.demo.wire import Answer, Client, Unanswered

PAUSE_SECONDS = 0.1


def main() -> None:
    """Publish everything."""
    told = json.loads(sys.stdin.readline())
    client = Client(told["url"], told["token"])
    for number, record in enumerate(told["records"]):
        answer, tries = insist(client, record, f"{told['key']}-{number}")
        if answer is None:
            return
        print(json.dumps({"number": number, "outcome": answer.outcome, "id": answer.value.get("id"), "tries": tries}))
        sys.stdout.flush()


def insist(client: Client, record: Any, key: str) -> tuple[Answer | None, int]:
    """Send until there is an answer that is not the deployment's failure; None when told to stop before."""
    tries = 0
    while True:
        tries += 1
        try:
            answer = client.call("POST", "/records", record, key)
            if answer.status < 500:
                return answer, tries
        except Unanswered:
            pass
        if select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            return None, tries


if __name__ == "__main__":
    main()
