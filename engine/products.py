"""What answers as a container engine: others than Docker Engine speak its API too. Pure."""

from collections.abc import Mapping
from typing import Any


def problem(version: Mapping[str, Any]) -> str:
    """Return why the engine that answers /version so cannot run sessions, or "" where it can; see docs/adr/0097."""
    parts = version.get("Components") or ()
    if any("Podman" in str(part.get("Name")) for part in parts):
        return "it is Podman, which leaves out parts of what sessions ask for, GPUs among them, and does not say so"
    return ""
