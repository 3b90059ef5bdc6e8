"""A thread that works until it is finished, and of which a test learns how often it has."""

import threading

from tests.wait import SECONDS, until


class SteadyThread:
    """Runs `run` in a thread of its own until `finish`. Subclasses are ready before they call this constructor."""

    def __init__(self) -> None:
        self.rounds = 0  # that `run` has made
        self.stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Make one round after the other until `stopped` is set."""
        raise NotImplementedError

    def wait_for(self, more: int) -> None:
        """Wait until so many more rounds have been made than now."""
        count = self.rounds + more
        until(lambda: self._error or self.rounds >= count, seconds=4 * SECONDS)
        if self._error:
            raise self._error

    def finish(self) -> None:
        """End it. Raises what went wrong."""
        self.stopped.set()
        self._thread.join(2 * SECONDS)
        if self._error:
            raise self._error

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # raised in the test's own thread
            self._error = error
