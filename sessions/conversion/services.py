"""Conversions of running sessions into private images of their owners: who may, under which name, and what came of it.

The host does the work (hostworker/images/converter.py); each function here is one transaction.
"""

import re
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.dispatch import Signal

from accounts import audit
from accounts.models import User
from resources import clock
from resources.kick import kick_scheduler
from resources.models import App, Host, HostImage, HostStatus, Image, ImageSource
from resources.registries import credentials
from resources.registries.references import reference_problem
from sessions import notes, notify
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import ACTIVE_CONVERSIONS, Conversion, ConversionState, Session

MAX_NAME_LENGTH: Final = 64
MAX_DESCRIPTION_LENGTH: Final = 200
LOCAL_NAMESPACE: Final = "gpuplatform"  # in place of a registry for images that stay on their host
_NAME: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
conversion_ended: Final = Signal()  # with `conversion`, in the transaction in which it is DONE or FAILED
_INHERITED: Final = ("min_cpu", "min_memory", "min_fgpu", "min_gpu_memory", "architecture", "accelerators")


class StaleConversionError(Exception):
    """The conversion was given up meanwhile, as when its host was silent for too long."""


def may_convert(user: User, session: Session) -> bool:
    """Return whether `user` may turn this session into an image: superadmins any, owners where their policy says so."""
    return user.is_superuser or (session.owner_id == user.pk and user.policy.allow_conversion)


def request(session: Session, *, actor: User, name: str, tag: str, description: str = "") -> Conversion:
    """Have the session's host save it as an image of its owner, and return the conversion.

    Raises RejectedError with a message per argument (`GENERAL` for none); nothing is written then.
    """
    if errors := problems(session, actor=actor, name=name, tag=tag, description=description):
        raise RejectedError(errors)
    try:
        with transaction.atomic():
            # Serializes names and the limit per owner.
            owner = User.objects.select_for_update(no_key=True).select_related("policy").get(pk=session.owner_id)
            if errors := _taken(owner, name, tag) | _over_limit(owner):
                raise RejectedError(errors)
            conversion = Conversion.objects.create(
                session=session,
                attempt=session.attempt,
                host=session.host,
                requested_by=actor,
                created_at=clock.now(),
                name=name,
                tag=tag,
                reference=reference_of(owner, name, tag),
                description=description,
                progress="Waiting for the host",
            )
            notes.note(session, Reason.CONVERSION, f"To be saved as image {conversion.reference}.", actor=actor)
            if session.host:
                notify.send_to_host(session.host.name, "convert_session", str(conversion.pk))
            if actor != session.owner:
                audit.record(actor, "convert", session, {"image": (None, conversion.reference)})
    except IntegrityError:
        raise RejectedError({GENERAL: "This session is being saved as an image already."}) from None
    return conversion


def problems(session: Session, *, actor: User, name: str, tag: str, description: str = "") -> dict[str, str]:
    """Return {argument of `request`: message} for what it would refuse, save for names that are taken and limits."""
    errors = {}
    if not may_convert(actor, session):
        errors[GENERAL] = "Your policy does not let you save sessions as images; ask an administrator to do it."
    elif session.status != Status.RUNNING:
        errors[GENERAL] = "Only a running session can be saved: its container is removed when it ends."
    elif session.host is None or session.host.status == HostStatus.LOST:
        errors[GENERAL] = "The session's host does not answer at present."
    elif session.conversions.filter(state__in=ACTIVE_CONVERSIONS).exists():
        errors[GENERAL] = "This session is being saved as an image already."
    if error := name_problem(name):
        errors["name"] = error
    if error := tag_problem(tag):
        errors["tag"] = error
    if not errors and (error := reference_problem(reference_of(session.owner, name, tag))):
        errors["name"] = error
    if len(description) > MAX_DESCRIPTION_LENGTH or not description.isprintable():
        errors["description"] = f"A description is one line of up to {MAX_DESCRIPTION_LENGTH} characters."
    return errors


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of an image, or None."""
    if not name:
        return "Choose a name."
    if len(name) > MAX_NAME_LENGTH:
        return f"A name has up to {MAX_NAME_LENGTH} characters."
    if not _NAME.fullmatch(name):
        return "A name has only small letters and digits, with single . _ or - between them."
    return None


def tag_problem(tag: str) -> str | None:
    """Return what is wrong with the tag of an image, or None."""
    if not tag:
        return "Choose a tag, such as 1."
    if len(tag) > MAX_NAME_LENGTH:
        return f"A tag has up to {MAX_NAME_LENGTH} characters."
    if not _TAG.fullmatch(tag):
        return "A tag has only letters, digits and . _ - and begins with a letter, a digit or _."
    return None


def suggested_name(session: Session) -> str:
    """Return a valid name for the image, made of the session's."""
    words = re.findall(r"[a-z0-9]+", session.name.lower())
    return "-".join(words)[:MAX_NAME_LENGTH].strip("-") or "image"


def reference_of(owner: User, name: str, tag: str) -> str:
    """Return the full name that the image of this owner gets: in the push target, or on its host alone."""
    registry = credentials.push_target()
    words = re.findall(r"[a-z0-9]+", owner.email.partition("@")[0].lower())
    user = "-".join([*words, str(owner.pk)])
    return f"{registry.address if registry else LOCAL_NAMESPACE}/private/{user}/{name}:{tag}"


def of_session(session: Session) -> QuerySet[Conversion]:
    """Return the session's conversions, the newest first, with who asked for them."""
    return session.conversions.select_related("requested_by", "image")


def begin(conversion_id: str) -> Conversion | None:
    """Return the conversion, moved from QUEUED to SAVING; None where it was begun, or given up, before."""
    waiting = Conversion.objects.filter(pk=conversion_id, state=ConversionState.QUEUED)
    if not waiting.update(state=ConversionState.SAVING, progress="Saving what changed"):
        return None
    related = ("session__owner", "session__image", "host")
    conversion = Conversion.objects.select_related(*related).defer("session__owner__password").get(pk=conversion_id)
    notify.sessions_changed([(conversion.session_id, conversion.session.owner_id, conversion.session.project_id)])
    return conversion


def show_progress(conversion: Conversion, text: str, state: ConversionState | None = None) -> None:
    """Record how far the conversion is, and in which state. Raises StaleConversionError where it was given up."""
    conversion.state = (state or ConversionState(conversion.state)).value
    active = Conversion.objects.filter(pk=conversion.pk, state__in=ACTIVE_CONVERSIONS)
    if not active.update(progress=text[:200], state=conversion.state):
        raise StaleConversionError(str(conversion))
    notify.sessions_changed([(conversion.session_id, conversion.session.owner_id, conversion.session.project_id)])


def finish(conversion: Conversion, host: Host, *, size_bytes: int, registry_digest: str, recipe: str) -> Image:
    """Offer the image to the session's owner, and tell them; return it. Raises StaleConversionError."""
    with transaction.atomic():
        session, now = conversion.session, clock.now()
        ended = {"state": ConversionState.DONE, "progress": "", "recipe": recipe, "ended_at": now}
        if not Conversion.objects.filter(pk=conversion.pk, state__in=ACTIVE_CONVERSIONS).update(**ended):
            raise StaleConversionError(str(conversion))
        image = _image_for(conversion)
        image.size, image.registry_digest, image.is_local = size_bytes, registry_digest, not registry_digest
        image.save()
        for app in App.objects.filter(image=session.image_id):
            app.pk, app.image = None, image
            app.save()
        HostImage.objects.update_or_create(host=host, image=image, defaults={"size": size_bytes, "seen_at": now})
        Conversion.objects.filter(pk=conversion.pk).update(image=image)
        conversion.refresh_from_db()
        text = f"Saved as image {conversion.reference}."
        notes.note(session, Reason.CONVERSION, text, actor=conversion.requested_by)
        kick_scheduler()
        conversion_ended.send(Conversion, conversion=conversion)
    return image


def fail(conversion: Conversion, problem: str) -> None:
    """Give the conversion up; does nothing once it has ended."""
    with transaction.atomic():
        failed = {"state": ConversionState.FAILED, "problem": problem, "progress": "", "ended_at": clock.now()}
        if Conversion.objects.filter(pk=conversion.pk, state__in=ACTIVE_CONVERSIONS).update(**failed):
            text = f"Not saved as image {conversion.reference}: {problem}"
            notes.note(conversion.session, Reason.CONVERSION, text)
            conversion.refresh_from_db()
            conversion_ended.send(Conversion, conversion=conversion)


def _taken(owner: User, name: str, tag: str) -> dict[str, str]:
    reference = reference_of(owner, name, tag)
    images = Image.objects.filter(owner=owner, removed_at=None)
    same_name = images.filter(environment=name, version=tag).exists() or images.filter(reference=reference).exists()
    if same_name:
        return {"tag": f"There is an image {name}:{tag} already; choose another tag, or delete that image first."}
    if Conversion.objects.filter(reference=reference, state__in=ACTIVE_CONVERSIONS).exists():
        return {"tag": f"Another session is being saved as {name}:{tag}; choose another tag."}
    return {}


def _over_limit(owner: User) -> dict[str, str]:
    most = owner.policy.max_private_images
    coming = Conversion.objects.filter(session__owner=owner, state__in=ACTIVE_CONVERSIONS)
    held = Image.objects.filter(owner=owner, source=ImageSource.SESSION, removed_at=None).count() + coming.count()
    if most is None or held < most:
        return {}
    return {GENERAL: f"The policy of {owner} allows {most} private images, and there are {held}; delete one first."}


def _image_for(conversion: Conversion) -> Image:
    """Return the unsaved image, or that of the same name which its owner deleted before."""
    session = conversion.session
    deleted = Image.objects.filter(
        owner=session.owner, environment=conversion.name, version=conversion.tag, removed_at__isnull=False
    )
    image = deleted.first() or Image(owner=session.owner, environment=conversion.name, version=conversion.tag)
    if image.pk:
        image.apps.all().delete()
    image.reference, image.description = conversion.reference, conversion.description
    image.source, image.is_enabled, image.removed_at = ImageSource.SESSION.value, True, None
    image.created_at = clock.now()
    for name in _INHERITED:
        setattr(image, name, getattr(session.image, name))
    return image
