"""A platform on which spec files can be carried out."""

from pathlib import Path
from typing import Any

from accounts.models import User
from deployments.models import Deployment
from folders.models import Folder
from folders.storage import paths as storage
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_group, make_host, make_image, make_root, make_user

URL = "/api/v1/specs/"


def make_owner(directory: Path) -> User:
    """Return a user with an image, a host of two GPUs, and storage."""
    host = make_host(gpus=2, group=make_group(name="default"))
    make_image(environment="PyTorch", version="2", reference="lab/pytorch:2")
    storage.prepare_root(make_root(host, name="data", path=str(directory), is_default=True))
    return make_user()


def post(owner: User, text: str, **options: Any) -> Any:
    """Send a spec file."""
    return client_of(owner).post(URL, {"text": text, **options})


def is_empty() -> bool:
    """Return whether nothing was made."""
    return not any(model.objects.exists() for model in (Session, Folder, Deployment))
