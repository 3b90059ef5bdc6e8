"""`make screenshots`: runs tests/screenshots.py, and prints how many pictures it took as one JSON object."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "screenshots"


def main() -> int:
    """Take them; return the exit status."""
    begun = time.time()
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "tests/screenshots.py"], cwd=ROOT, check=False)
    pictures = [path for path in FOLDER.rglob("*.png") if path.stat().st_mtime >= begun]
    figures = {"pictures": len(pictures), "folder": str(FOLDER), "seconds": round(time.time() - begun)}
    sys.stdout.write(json.dumps(figures) + "\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
