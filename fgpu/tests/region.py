"""Where things stand in a session's account, for tests that look into it or spoil it: struct region in src/region.h."""

from __future__ import annotations

from pathlib import Path

from fgpu.region import GPU_BASE, GPU_BYTES, HIGH, NOTE, SLOT_BASE, SLOT_BYTES

__all__ = ["GPU_BASE", "GPU_BYTES", "HIGH", "NOTE", "SLOT_BASE", "SLOT_BYTES", "read_note"]


def read_note(path: Path) -> str:
    """Return why the session's last process was refused; "" if none was."""
    return path.read_bytes()[NOTE].split(b"\0")[0].decode()
