"""What others notice of files that are made to be slow; `python -m bench.abuse_rendering`.

`notebook_503`: how many of 60 pages of another user are refused while one user asks for a hostile notebook of 150 KB,
20 times at once, without end. `zip_seconds_100000`: how long an archive of 100,000 files takes whose names are all the
same once they are safe to unpack.
"""

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import requests

from bench.common import ApiUser, load
from bench.shared_platform import bench_platform
from bench.sizes import size
from bench.terminal import cookie_of
from tests.platform import Platform

ATTACKERS: Final = size(20, 2)
PAGES: Final = size(60, 3)
BRACKETS: Final = 50_000
CELLS: Final = 3
FILES: Final = size(99_999, 100)  # and their directory: as many as an archive takes
OTHER: Final = "developer@example.org"
LETTERS: Final = [chr(code) for code in range(1, 32)] + list('<>:"|?*\\')  # which no archive has in a name


def main() -> None:
    """Run this benchmark alone."""
    with bench_platform("bench-abuse", COMPUTE_SANDBOX_POOL="0") as platform:
        figures = measure(platform)
    sys.stdout.write(json.dumps(figures | {"load": load()}) + "\n")


def measure(platform: Platform) -> dict[str, Any]:
    """Return all figures."""
    client = ApiUser(platform)
    folder = str(client.post("/folders/", {"name": f"bench-{uuid.uuid4().hex[:8]}"})["id"])
    (root,) = platform.rows("SELECT path FROM folders_storageroot WHERE is_default")
    files = next(Path(root["path"]).glob(f"*/{folder}/files"))
    cookie = cookie_of(platform)
    return {
        "notebook_503": refused_pages(platform, folder, files, cookie),
        "zip_seconds_100000": zip_seconds(platform, folder, files, cookie),
    }


def refused_pages(platform: Platform, folder: str, files: Path, cookie: str) -> int:
    """Return how many pages of another user were refused while one asks for a hostile notebook."""
    cells = [{"cell_type": "markdown", "source": "[" * BRACKETS}] * CELLS
    (files / "hostile.ipynb").write_text(json.dumps({"cells": cells}))
    other = {"Cookie": cookie_of(platform, OTHER)}
    with asked_without_end(f"{platform.url}/folders/{folder}/file/?path=hostile.ipynb", cookie):
        statuses = [
            requests.get(f"{platform.url}/sessions/", headers=other, timeout=60).status_code for _ in range(PAGES)
        ]
    return statuses.count(503)


@contextmanager
def asked_without_end(url: str, cookie: str) -> Iterator[None]:
    """Have ATTACKERS threads ask for a page during the block, each anew as soon as it has a response."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with suppress(requests.RequestException):
                requests.get(url, headers={"Cookie": cookie}, timeout=5)

    threads = [threading.Thread(target=ask) for _ in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    time.sleep(1)  # until all of them are under way
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def zip_seconds(platform: Platform, folder: str, files: Path, cookie: str) -> float:
    """Return how long it takes to download the archive."""
    directory = files / "same"
    directory.mkdir()
    opened = os.open(directory, os.O_RDONLY)
    for number in range(FILES):
        name = "".join(LETTERS[number // len(LETTERS) ** place % len(LETTERS)] for place in range(4))
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=opened))
    os.close(opened)
    began = time.monotonic()
    address = f"{platform.url}/api/v1/folders/{folder}/zip/?path=same"
    with requests.get(address, headers={"Cookie": cookie}, timeout=3600, stream=True) as response:
        response.raise_for_status()
        for _ in response.iter_content(2**20):
            pass
    return round(time.monotonic() - began, 1)


if __name__ == "__main__":
    main()
