"""Credit-based flow control for transports without it: the receiver acknowledges, the sender keeps a window."""

import asyncio


class Credit:
    """The sender's side: counts the bytes that are sent and not acknowledged, and waits while they reach `window`."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._in_flight = 0
        self._has_credit = asyncio.Event()
        self._has_credit.set()

    def spend(self, count: int) -> None:
        """Note that `count` bytes were sent."""
        self._in_flight += count
        self._update()

    def give_back(self, count: int) -> None:
        """Note that the receiver has acknowledged `count` bytes; more than were sent counts as all of them."""
        self._in_flight = max(0, self._in_flight - count)
        self._update()

    async def wait(self) -> None:
        """Return once fewer bytes than the window are in flight."""
        await self._has_credit.wait()

    def _update(self) -> None:
        if self._in_flight < self._window:
            self._has_credit.set()
        else:
            self._has_credit.clear()
