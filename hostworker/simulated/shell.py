"""The shell of a simulated session: a line editor and a few commands, so that a terminal shows something. Pure."""

from collections.abc import Callable
from typing import Final

from hostworker.simulated.runtime import SimulatedContainer
from resources.amounts.units import MIB, size_text
from resources.gpus.shares import share_bytes

WELCOME: Final = "This session is simulated: there is no container behind it. Type 'help'.\r\n"
BACKSPACES: Final = b"\x7f\x08"
INTERRUPT: Final = 0x03
END_OF_INPUT: Final = 0x04
PROCESS_ID: Final = 1


class SimulatedShell:
    """What one terminal shows, by what is typed into it: `feed` returns the output."""

    def __init__(self, container: SimulatedContainer, now: Callable[[], float]) -> None:
        self._container = container
        self._now = now
        self._line = bytearray()
        self._is_confirmed = False
        self.has_ended = False

    def begin(self) -> bytes:
        """Return what the platform waits for first: the shell's process id."""
        return f"{PROCESS_ID}\r\n".encode()

    def feed(self, data: bytes) -> bytes:
        """Return what is shown for this input."""
        shown = bytearray()
        for byte in data:
            if not self._is_confirmed:  # the platform has read the process id
                self._is_confirmed = True
                shown += WELCOME.encode() + self._prompt
            elif byte in b"\r\n":
                shown += b"\r\n" + self._run(self._line.decode(errors="replace").split())
                self._line.clear()
                shown += b"" if self.has_ended else self._prompt
            elif byte in BACKSPACES:
                shown += b"\b \b" if self._line else b""
                del self._line[-1:]
            elif byte == INTERRUPT:
                self._line.clear()
                shown += b"^C\r\n" + self._prompt
            elif byte == END_OF_INPUT:
                self.has_ended = True
            else:
                self._line.append(byte)
                shown.append(byte)
        return bytes(shown)

    @property
    def _prompt(self) -> bytes:
        return f"work@{self._container.spec.hostname}:~$ ".encode()

    def _run(self, words: list[str]) -> bytes:
        lines = self._lines(words) if words else []
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _lines(self, words: list[str]) -> list[str]:
        spec = self._container.spec
        match words:
            case ["exit" | "logout"]:
                self.has_ended = True
                return []
            case ["help"]:
                return ["echo TEXT, exit, hostname, nproc, nvidia-smi, tail"]
            case ["hostname"]:
                return [spec.hostname]
            case ["nproc"]:
                return [str(spec.cpu)]
            case ["echo", *rest]:
                return [" ".join(rest)]
            case ["tail", *_]:
                return self._container.program.output(self._container.age(self._now()))[-10:]
            case ["nvidia-smi", *_]:
                return self._gpus()
        return [f"{words[0]}: not in a simulated session"]

    def _gpus(self) -> list[str]:
        seconds, program = self._container.age(self._now()), self._container.program
        lines = []
        for index, grant in enumerate(self._container.spec.gpus):
            share = share_bytes(grant.memory_bytes, grant.share_milli, grant.gpu_milli)
            used = program.gpu_memory_bytes(seconds, share) // MIB
            busy = round(100 * program.gpu_busy(seconds))
            lines.append(f"{index}  {grant.uuid}  {used} MiB of {size_text(share)}  {busy} %")
        return lines or ["No devices were found"]
