"""Faults of the core, read from `faults.toml`: each is one edit of a module, which the tests of the core must catch."""

import tomllib
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).with_name("faults.toml")
CORE: Final = Path(__file__).parent.parent


class Fault(NamedTuple):
    """One edit of one module, whose name is that within `scheduler.core`."""

    module: str
    name: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The file of the module."""
        return CORE.joinpath(*self.module.split(".")).with_suffix(".py")

    def planted(self, source: str) -> str:
        """Return the source of the module with the fault. Raises ValueError unless the text is there once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module}: {self.name}: the text is there {source.count(self.old)} times")
        return source.replace(self.old, self.new)


FAULTS: Final = tuple(
    Fault(module, name, old, new)
    for module, rows in tomllib.loads(TABLE.read_text()).items()
    for name, (old, new) in rows.items()
)
