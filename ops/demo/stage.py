"""What the acts share: the running edge, the people with their credentials, and what one act leaves for the next."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ops.demo.checks import Check, Told
from ops.demo.narrator import Narrator
from ops.demo.payloads import Delivery
from ops.demo.wire import Client, Refused
from ops.local.edge import LocalEdge

T = TypeVar("T")

PATIENCE_SECONDS = 90.0
"""How long the story waits for anything that should happen by itself; on an idle machine it takes a second or two."""

CLOCK = "moorage:clock"
"""The actor of what time alone has done, as history names it."""


@dataclass
class Stage:
    """One telling. `exits` undoes what was started; `folder` is scratch space, with the state folder in it."""

    narrator: Narrator
    folder: Path
    deliveries: Sequence[Delivery]
    exits: ExitStack = field(default_factory=ExitStack)
    told: list[Told] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    events: dict[int, str] = field(default_factory=dict)
    """The record of each delivery, by its place among the deliveries."""
    recovered: str = ""
    """The record whose first worker was killed."""
    shipped: str = ""
    """The record that ends the release's chain."""
    running: LocalEdge | None = None
    client: Callable[[str, str | None], Client] = Client
    """How a client is made of a URL and a token; a test puts a dishonest one here."""

    @property
    def edge(self) -> LocalEdge:
        """The running edge."""
        if self.running is None:
            raise Refused("the local edge is not running")
        return self.running

    def as_(self, who: str) -> Client:
        """A client with the credential of one of the people; `root` and `nobody` are always there."""
        if who == "nobody":
            return self.client(self.edge.url, None)
        return self.client(self.edge.url, self.edge.root_token if who == "root" else self.tokens[who])

    def say(self, text: str) -> None:
        """A sentence of the story."""
        self.narrator.say(text)

    def check(self, statement: str, expected: Any, found: Any) -> None:
        """Make a claim: keep it and print it."""
        self.narrator.check(self.keep(Check(statement, expected, found)))

    def keep(self, check: Check) -> Check:
        """Keep a claim that the act prints itself."""
        self.told[-1].checks.append(check)
        return check

    def note(self, **facts: Any) -> None:
        """Keep facts for the document."""
        self.told[-1].facts.update(facts)

    def until(
        self,
        what: str,
        look: Callable[[], T | None],
        pause: float = 0.1,
        progress: Callable[[], str] | None = None,
    ) -> T:
        """Look until there is something and return it. Raises Refused after PATIENCE_SECONDS."""
        end = time.monotonic() + PATIENCE_SECONDS
        with self.narrator.working(f"waiting until {what}") as working:
            while True:
                found = look()
                if found is not None and found is not False:
                    return found
                if progress is not None:
                    working.say(progress())
                if time.monotonic() > end:
                    raise Refused(f"waited {PATIENCE_SECONDS:.0f} s and it did not happen: {what}")
                time.sleep(pause)


@dataclass(frozen=True)
class Act:
    """A part of the story: its name in the document, its title, its first words, and what happens."""

    name: str
    title: str
    intro: str
    play: Callable[[Stage], None]
