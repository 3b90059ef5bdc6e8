"""Imports for tests of pages: those of a repository with a notebook, fetched by nobody."""

from typing import Any

from accounts.models import User
from imports.models import Import, ImportState, ImportTarget
from resources import clock

ADDRESS = "https://github.com/lab/course"
FOUND = {
    "branch": "main",
    "commit": "0123456789abcdef",
    "bytes": 3 * 2**20,
    "files": 12,
    "present": ["requirements.txt"],
    "notebooks": ["first.ipynb", "more/second.ipynb"],
    "frameworks": {"torch": "2.13"},
    "devcontainer": {"cpus": 2, "memory": 2**31},
}


def make_import(owner: User, **fields: Any) -> Import:
    """Return a look at a repository that is done, unless `fields` say otherwise."""
    state = fields.setdefault("state", ImportState.DONE)
    ended_at = None if state in (ImportState.WAITING, ImportState.FETCHING) else clock.now()
    found = FOUND if state == ImportState.DONE else {}
    defaults = {"address": ADDRESS, "kind": "git", "url": ADDRESS, "directory": "course", "found": found}
    return Import.objects.create(owner=owner, ended_at=ended_at, **{"target": ImportTarget.LOOK} | defaults | fields)
