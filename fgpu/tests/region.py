"""Where things stand in a session's account, for tests that look into it or spoil it: struct region in src/region.h."""

from __future__ import annotations

from pathlib import Path

NOTE = slice(8, 128)
HIGH = 168
GPU_BASE, GPU_BYTES = 176, 600
SLOT_BASE, SLOT_BYTES = GPU_BASE + 16 * GPU_BYTES, 160


def read_note(path: Path) -> str:
    """Return why the session's last process was refused; "" if none was."""
    return path.read_bytes()[NOTE].split(b"\0")[0].decode()
