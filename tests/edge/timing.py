"""Bounds in real time, on machines that have other things to do as well."""

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Try:
    """One of a few measurements: the seconds that it took, once it is over."""

    took: float = math.inf


def tries(seconds: float, most: int = 4) -> Iterator[Try]:
    """Measure until once it took less than so many seconds, a few times at most.

    A delay of the product's own is there each time; one of the machine's is not.
    """
    took: list[float] = []
    while len(took) < most:
        one = Try()
        yield one
        took.append(one.took)
        if one.took < seconds:
            return
    raise AssertionError(f"it never took less than {seconds} s: {took}")
