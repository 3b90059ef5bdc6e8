"""The frames in which the engine sends what a process without a terminal wrote. Pure."""

from typing import Final

FRAME_HEAD: Final = 8  # bytes: 1 or 2 for the stream, three zeros, and the length of what follows, big-endian


class FrameReader:
    """Takes a stream of frames apart, as it arrives."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = FRAME_HEAD  # bytes, before which no more frame is complete

    def feed(self, data: bytes) -> list[bytes]:
        """Return the contents of the frames that are complete by now."""
        self._rest += data
        contents, at = [], 0
        while len(self._rest) >= at + self._wanted:
            end = at + FRAME_HEAD + int.from_bytes(self._rest[at + 4 : at + FRAME_HEAD], "big")
            if end > len(self._rest):
                self._wanted = end - at
                break
            contents.append(bytes(self._rest[at + FRAME_HEAD : end]))
            at, self._wanted = end, FRAME_HEAD
        del self._rest[:at]
        return contents


def unframed(framed: bytes) -> bytes:
    """Return the contents of the frames, one after the other; the last may be cut off."""
    contents, at = [], 0
    while at + FRAME_HEAD < len(framed):
        end = at + FRAME_HEAD + int.from_bytes(framed[at + 4 : at + FRAME_HEAD], "big")
        contents.append(framed[at + FRAME_HEAD : end])
        at = end
    return b"".join(contents)
