"""What a picture of a run is drawn with: marks, bars and branches, in two sets, and the colours."""

from collections.abc import Mapping
from dataclasses import dataclass

MINTED = "minted"
"""How an awakeable stands that was made: whether anybody has answered is told by the wait for it, and not here."""

STYLES = {
    "running": "cyan",
    "waiting": "yellow",
    "suspended": "yellow",
    "success": "green",
    "failed": "bold red",
    "partial_failure": "bold red",
    "canceled": "magenta",
    MINTED: "yellow",
}
"""The colour of each status, of a run or a step."""


@dataclass(frozen=True)
class Glyphs:
    """What a picture is drawn with."""

    marks: Mapping[str, str]
    bars: Mapping[str, str]
    work: str
    between: str
    earlier: str
    first: str
    middle: str
    last: str
    only: str
    rule: str
    dot: str
    dash: str
    more: str

    def bar(self, kind: str) -> str:
        """The cell of a step of this kind."""
        return self.bars.get(kind, self.work)


PLAIN = Glyphs(
    marks={
        "running": ">",
        "waiting": "~",
        "suspended": "~",
        "success": "+",
        "failed": "x",
        "partial_failure": "x",
        "canceled": "-",
        MINTED: "o",
    },
    bars={
        "sleep": "-",
        "wait": ":",
        "event": ":",
        "child": "=",
        "awakeable": "o",
        "join": ".",
        "now": ".",
        "random": ".",
        "uuid": ".",
    },
    work="#",
    between="-",
    earlier="<",
    first="/",
    middle="|",
    last="\\",
    only="*",
    rule="-",
    dot=" . ",
    dash="-",
    more="...",
)
"""For terminals that have nothing but ASCII."""

DRAWN = Glyphs(
    marks={
        "running": "▸",
        "waiting": "◷",
        "suspended": "◷",
        "success": "✓",
        "failed": "✗",
        "partial_failure": "✗",
        "canceled": "⊘",
        MINTED: "◇",
    },
    bars={
        "sleep": "┄",
        "wait": "░",
        "event": "░",
        "child": "▒",
        "awakeable": "◇",
        "join": "·",
        "now": "·",
        "random": "·",
        "uuid": "·",
    },
    work="█",
    between="┄",
    earlier="◂",
    first="╭",
    middle="│",
    last="╰",
    only="╶",
    rule="─",
    dot=" · ",
    dash="–",
    more="…",
)
