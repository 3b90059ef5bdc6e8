"""The devices by which programs use InfiniBand and RoCE; see rdma-core. No Django."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path("/dev/infiniband")
# To transfer, and to find who is to be transferred to. Those that manage the network itself (umad, issm) are root's.
NAMES: Final = ("uverbs*", "rdma_cm")


def nodes() -> tuple[str, ...]:
    """Return the paths of the devices of this host; none where it has no such network."""
    found = [path for name in NAMES for path in sorted(FOLDER.glob(name))]
    return tuple(str(path) for path in found if path.is_char_device())
