"""Runs the program that fetches in this process."""

import json
from pathlib import Path
from typing import Any

from imports.fetcher import program
from imports.fetcher.job import Credential, FetchJob
from imports.fetcher.public_addresses import networks_of
from imports.tests.git_host import GitHost

LOOPBACK = networks_of(["127.0.0.0/8"])


def job_for(url: str, target: Path, **changes: Any) -> FetchJob:
    """Return a job that may fetch from this machine."""
    return FetchJob(**{"id": "i" * 16, "kind": "git", "url": url, "target": target, "networks": LOOPBACK, **changes})


def fetched(capsys: Any, job: FetchJob) -> dict[str, Any]:
    """Return the last line of the program: what was found, or the problem."""
    capsys.readouterr()
    code = program.run(job)
    last: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code == 0) == ("found" in last)
    return last


def token_for(host: GitHost, name: str = "localhost") -> Credential:
    """Return a credential with the token that the host wants, for one name of it."""
    return Credential(host=name, token=host.token)
