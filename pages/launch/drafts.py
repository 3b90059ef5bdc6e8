"""The drafts of launches: each user's form is kept on the server while it is filled in, as it was typed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from django.http import QueryDict
from django.utils import timezone
from django.utils.datastructures import MultiValueDict

from accounts.models import User
from pages.launch.fields import CARD, VERSION
from pages.launch.models import LaunchDraft
from pages.launch.steps import STEPS

FIELDS: Final = frozenset(
    (
        *("form_key", "changes", CARD, VERSION, "variable", "value", "mount", "mount_read_only"),
        *(name for step in STEPS for name in step.fields),
    )
)
PATH_PREFIX: Final = "mount_path_"
MAX_LENGTH: Final = 256 * 1024  # characters of a draft; a form beyond that cannot be launched either
MAX_SOURCE_LENGTH: Final = 2000
KEY_LENGTH: Final = 32


def save(owner: User, posted: QueryDict) -> None:
    """Keep what a form has sent, unless that form has been launched meanwhile; forms without a key are not kept."""
    key, source = _key(posted.get("form_key", "")), posted.get("source", "")
    values = {
        _storable(name): [_storable(text) for text in texts]
        for name, texts in posted.lists()
        if name in FIELDS or name.startswith(PATH_PREFIX)
    }
    if not key or len(source) > MAX_SOURCE_LENGTH or _length(values) > MAX_LENGTH:
        return
    fields = {"values": values, "source": _storable(source), "updated_at": timezone.now()}
    if not LaunchDraft.objects.filter(owner=owner).exclude(launched_form=key).update(**fields):
        draft = LaunchDraft(owner=owner, **fields)
        LaunchDraft.objects.bulk_create([draft], ignore_conflicts=True)  # a conflict is a form that was launched


def discard(owner: User, posted: QueryDict, launched_to: str = "") -> None:
    """Drop the draft; what its form still sends is not kept. `launched_to` is the address to which a launch leads."""
    LaunchDraft.objects.update_or_create(
        owner=owner,
        defaults={
            "values": {},
            "source": "",
            "launched_form": _key(posted.get("form_key", "")),
            "launched_digest": _digest(posted) if launched_to else "",
            "launched_to": launched_to,
        },
    )


def launched_to(owner: User, posted: QueryDict) -> str:
    """Return where the last launch has led if it was of this form as it is, else "". To be called in a transaction.

    Until its end, another post of the owner waits: a form that is posted twice at once is launched once.
    """
    draft, _is_new = LaunchDraft.objects.select_for_update().get_or_create(owner=owner)
    key = _key(posted.get("form_key", ""))
    is_same = key and draft.launched_form == key and draft.launched_digest == _digest(posted)
    return draft.launched_to if is_same else ""


def find(owner: User, source: str) -> MultiValueDict[str, str] | None:
    """Return what is kept, by the names of the fields; None without, or if it began with another link than `source`.

    Without a link, what began with any is returned.
    """
    draft = LaunchDraft.objects.filter(owner=owner).first()
    if draft is None or not draft.values or (source and draft.source != source):
        return None
    return MultiValueDict(draft.values)


def version_of(draft: MultiValueDict[str, str]) -> str:
    """Return which form a draft comes from, and after how many changes of it."""
    return f"{draft.get('form_key')}:{draft.get('changes')}"


def _digest(posted: QueryDict) -> str:
    """Return the digest of what would be launched."""
    fields = sorted((name, texts) for name, texts in posted.lists() if name in FIELDS or name.startswith(PATH_PREFIX))
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _length(values: Mapping[str, list[str]]) -> int:
    return sum(len(name) + sum(map(len, texts)) for name, texts in values.items())


def _key(text: str) -> str:
    return _storable(text)[:KEY_LENGTH]


def _storable(text: str) -> str:
    """Return a text that PostgreSQL can keep."""
    return text.replace("\0", "")
