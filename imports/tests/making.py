"""Makes what imports need, for tests."""

from typing import Any

from accounts.models import User
from imports.models import Import, ImportState
from resources import clock
from resources.models import Image
from tests.factories import make_group, make_host, make_image, make_root, make_user

ADDRESS = "https://github.com/o/r"


def make_world() -> tuple[User, Image]:
    """Return a user who may fetch, and the image in which that is done; beside a group that has no host."""
    make_group(name="a-group-without-a-host")
    make_root(make_host(), is_default=True)
    return make_user(), make_image(reference="gpuplatform/python:3.11", environment="Python", version="3.11")


def done(import_: Import, **found: Any) -> Import:
    """Return the import as it is once this was found."""
    import_.state, import_.ended_at, import_.found = ImportState.DONE.value, clock.now(), found
    import_.save()
    return import_
