"""Runs one platform for several smoke runs: `python -m bench.shared_platform FILE`.

Writes to FILE where it is, says `ready`, and runs it until it is interrupted. `bench_platform` lends it to benchmarks
whose environment names FILE.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import bench.apps_ready  # noqa: F401  # before what imports models
from bench.sizes import PLATFORM
from tests.platform import ROOT, Platform, running_platform

SANDBOXES: Final = 8  # the default of COMPUTE_SANDBOX_POOL


@contextmanager
def bench_platform(folder: str, **settings: str) -> Iterator[Platform]:
    """Run a platform with new data in a folder of var, or lend the one that smoke runs share."""
    if PLATFORM not in os.environ:
        with running_platform(ROOT / "var" / folder, **settings) as platform:
            yield platform
        return
    facts: dict[str, Any] = json.loads(Path(os.environ[PLATFORM]).read_text())
    lent = Platform(**facts | {"var_dir": Path(facts["var_dir"])})
    try:
        yield lent
    finally:
        lent.end_sessions()


def main() -> None:
    """Run the platform."""
    file = Path(sys.argv[1])
    settings = {"COMPUTE_SANDBOX_POOL": str(SANDBOXES), "COMPUTE_WEB_PROCESSES": "1"}
    with suppress(KeyboardInterrupt), running_platform(file.with_suffix(""), **settings) as platform:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(platform), default=str))
        print("ready", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
