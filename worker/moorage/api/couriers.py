"""Couriers inside one event loop: for the host, where there is no platform in between."""

from collections.abc import Callable, Sequence

from moorage.messages.courier import Courier


class HostCouriers:
    """Makes the Courier of each destination that something is to be sent to. `told` says who was told, for tests."""

    def __init__(self, make: Callable[[str], Courier]) -> None:
        self._make = make
        self._couriers: dict[str, Courier] = {}
        self.told: list[str] = []

    def tell(self, destinations: Sequence[str]) -> None:
        """Tell each that there is something to send; returns at once."""
        self.told.extend(destinations)
        for destination in destinations:
            if destination not in self._couriers:
                self._couriers[destination] = self._make(destination)
            self._couriers[destination].tell()

    async def settle(self) -> None:
        """Wait until nothing is being sent."""
        for courier in list(self._couriers.values()):
            await courier.settled()
