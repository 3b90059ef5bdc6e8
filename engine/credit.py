"""Flow control where the transport gives none: the receiver confirms, and the sender keeps within a window."""

import asyncio


class Credit:
    """The sender's side: counts the bytes under way, of which there should be fewer than `window`."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()

    def spend(self, count: int) -> None:
        """Note that `count` bytes were sent."""
        self._under_way += count
        self._update()

    def give_back(self, count: int) -> None:
        """Note that the receiver has dealt with `count` bytes; more than were sent counts as all of them."""
        self._under_way = max(0, self._under_way - count)
        self._update()

    async def wait(self) -> None:
        """Return once there is room in the window."""
        await self._room.wait()

    def _update(self) -> None:
        if self._under_way < self._window:
            self._room.set()
        else:
            self._room.clear()
