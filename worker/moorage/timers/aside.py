"""What is known of an item that the Clock has set aside (clause timers.alarm)."""

import json
from dataclasses import dataclass
from typing import Any

from moorage.kernel.instants import Instant, render


@dataclass(frozen=True, slots=True)
class Failing:
    """How often an item failed when it was fired, with the code or the name of which error, and when it is tried again."""

    attempts: int
    error: str
    retry_at: Instant

    @classmethod
    def of(cls, text: str | None) -> "Failing | None":
        """What a column that FAILING made holds."""
        return None if text is None else cls(**json.loads(text))

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {"attempts": self.attempts, "error": self.error, "retry_at": render(self.retry_at)}
