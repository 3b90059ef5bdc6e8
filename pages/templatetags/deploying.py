"""Template tags that lead to the form of a deployment, for other pages."""

from collections.abc import Iterable
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from deployments.definitions.services import proposes
from folders.files.entries import FolderEntry
from folders.models import Folder

register = template.Library()


@register.simple_tag
def deploy_address(folder: Folder, path: str, entries: Iterable[FolderEntry]) -> str:
    """Return the address of the form that a directory with these entries fills, "" where it proposes nothing."""
    if not proposes((each.name for each in entries), path):
        return ""
    query = {"folder": folder.pk} | ({"path": path} if path else {})
    return f"{reverse('deployments:new')}?{urlencode(query)}"
