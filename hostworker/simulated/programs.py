"""What the program of a simulated session uses and writes at each moment of its life. Pure, and the same each time."""

import math
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

LINE_SECONDS: Final = 5.0  # between two lines of output
MIN_BATCH_SECONDS: Final = 60
MAX_BATCH_SECONDS: Final = 600
FAILING: Final = 20  # one batch program of so many fails
EPOCH_SECONDS: Final = 90.0  # of a training; its last part is an evaluation, with an idle GPU
EVALUATION: Final = 0.12
WARM_UP_SECONDS: Final = 20.0  # until memory is as full as it gets
NANOSECONDS: Final = 10**9


class ProgramKind(Enum):
    """What a session is used for: mean part of its CPU, part of its memory, of its GPU's memory, and of GPU time."""

    TRAINING = (0.55, 0.7, 0.9, 0.93)
    NOTEBOOK = (0.12, 0.35, 0.4, 0.25)
    FORGOTTEN = (0.002, 0.2, 0.3, 0.0)


@dataclass(frozen=True, slots=True)
class Program:
    """The program of the session with this id."""

    session: str

    @property
    def kind(self) -> ProgramKind:
        """Half of the sessions train, some are forgotten, the others are notebooks."""
        number = self._number("kind") % 100
        if number < 50:
            return ProgramKind.TRAINING
        return ProgramKind.FORGOTTEN if number < 60 else ProgramKind.NOTEBOOK

    def batch_seconds(self) -> int:
        """Return how long a batch program takes."""
        return MIN_BATCH_SECONDS + self._number("length") % (MAX_BATCH_SECONDS - MIN_BATCH_SECONDS)

    def exit_code(self) -> int:
        """Return the exit code of a batch program."""
        return int(self._number("exit") % FAILING == 0)

    def cpu_nanoseconds(self, seconds: float, cores: int) -> int:
        """Return the CPU time of the first `seconds`: the integral of a mean and a wave around it."""
        mean, period = self.kind.value[0], 40.0 + self._number("period") % 60
        wave = mean / 2 * period / (2 * math.pi) * (1 - math.cos(2 * math.pi * seconds / period))
        return round((mean * seconds + wave) * cores * NANOSECONDS)

    def memory_bytes(self, seconds: float, limit_bytes: int) -> int:
        """Return the memory held at this moment."""
        return round(limit_bytes * self.kind.value[1] * min(1.0, 0.2 + seconds / WARM_UP_SECONDS))

    def gpu_memory_bytes(self, seconds: float, share_bytes: int) -> int:
        """Return the GPU memory held at this moment."""
        return round(share_bytes * self.kind.value[2] * min(1.0, seconds / WARM_UP_SECONDS))

    def gpu_busy(self, seconds: float) -> float:
        """Return the part of its GPU time that it uses at this moment."""
        busy = self.kind.value[3]
        if self.kind is ProgramKind.TRAINING:
            is_evaluating = (seconds % EPOCH_SECONDS) / EPOCH_SECONDS > 1 - EVALUATION
            return 0.15 if is_evaluating else busy + 0.05 * math.sin(seconds)
        return max(0.0, busy * (1 + math.sin(seconds / 11 + self._number("phase"))))

    def network_bytes(self, seconds: float) -> int:
        """Return what it has received, and half of what it has sent, in the first `seconds`."""
        return round(seconds * (2_000 + self._number("network") % 200_000))

    def output(self, seconds: float) -> list[str]:
        """Return the lines that it has written in the first `seconds`."""
        if self.kind is ProgramKind.TRAINING:
            return [self._training_line(number) for number in range(int(seconds / LINE_SECONDS))]
        return ["Serving notebooks from local directory: /home/work"]

    def _training_line(self, number: int) -> str:
        epoch, step = divmod(number, round(EPOCH_SECONDS / LINE_SECONDS))
        loss = 0.2 + 2.1 * math.exp(-number / 40) + (zlib.crc32(f"{self.session}{number}".encode()) % 100) / 2000
        return f"epoch {epoch + 1:>3}  step {step * 50:>4}  loss {loss:.4f}"

    def _number(self, of: str) -> int:
        return zlib.crc32(f"{self.session} {of}".encode())
