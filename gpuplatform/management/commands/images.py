"""`manage.py images`: list, enter, scan, pull and remove the images that sessions run."""

import json
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Count, QuerySet

from accounts import audit
from accounts.models import User
from resources.amounts.units import fgpu_text, size_text
from resources.images import pulls
from resources.images.scan import EnteredImage, ScanError, ScannedImage, enter, record, scan
from resources.kick import kick_scheduler
from resources.models import Host, HostImage, HostStatus, Image, ImagePull, ImageSource, PullState
from resources.registries.credentials import CredentialsError
from resources.registries.references import spellings
from sessions.conversion import private_images
from sessions.errors import RejectedError
from sessions.models import Session

POLL_SECONDS: Final = 1.0
ENDED: Final = (PullState.DONE, PullState.FAILED)


class Command(BaseCommand):
    """One subcommand a verb; those that change something say what they did."""

    help = "List, enter, scan, pull and remove the images that sessions run; see docs/images.md."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="show all images, and how many hosts have each")
        add = verbs.add_parser("add", help="enter an image that the hosts have or can pull")
        add.add_argument("reference", help="full name with tag, such as registry.example.com/team/image:1.0")
        add.add_argument("--environment", default="", help="what users pick first; else from the image's labels")
        add.add_argument("--version", default="", dest="image_version", help="what users pick next; else from labels")
        add.add_argument("--owner", metavar="EMAIL", help="who alone may use it; else everybody")
        add.add_argument("--disabled", action="store_true", help="do not offer it yet")
        add.add_argument("--no-scan", action="store_true", help="ask neither engine nor registry about it")
        scanner = verbs.add_parser("scan", help="read what images say of themselves, and record size and architecture")
        scanner.add_argument("references", nargs="*", metavar="reference", help="without any: all registered images")
        puller = verbs.add_parser("pull", help="have hosts pull an image, and show how that goes")
        puller.add_argument("reference")
        puller.add_argument("--host", action="append", default=[], metavar="NAME", help="else all ready hosts")
        puller.add_argument("--no-wait", action="store_true", help="do not wait for the hosts")
        remover = verbs.add_parser("remove", help="take an image out of the list; refused while sessions use it")
        remover.add_argument("reference")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """Run the subcommand; raise CommandError with what is wrong."""
        try:
            getattr(self, f"_{verb}")(**options)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except (CredentialsError, ScanError, ValueError) as error:
            raise CommandError(str(error)) from error

    def _list(self, **options: Any) -> None:
        live = Session.objects.live().order_by().values_list("image").annotate(Count("pk"))
        held = HostImage.objects.order_by().values_list("image").annotate(Count("pk"))
        users, holders = dict(live), dict(held)
        rows = [("REFERENCE", "ENVIRONMENT", "FOR", "SIZE", "ARCHITECTURE", "HOSTS", "SESSIONS", "")]
        hosts = Host.objects.count()
        for image in Image.objects.filter(removed_at=None).select_related("owner"):
            size = "-" if image.size is None else size_text(image.size)
            whose = str(image.owner or "everybody")
            on_hosts = f"{holders.get(image.pk, 0)} of {hosts}"
            state = "" if image.is_enabled else "disabled"
            names = (image.reference, str(image), whose, size, image.architecture or "-")
            rows.append((*names, on_hosts, str(users.get(image.pk, 0)), state))
        self._print(rows)

    def _add(
        self,
        reference: str,
        environment: str,
        image_version: str,
        owner: str | None,
        disabled: bool,
        no_scan: bool,
        **options: Any,
    ) -> None:
        scanned = None if no_scan else scan(reference)
        entered = EnteredImage(
            reference=reference,
            environment=environment,
            version=image_version,
            owner=None if owner is None else _user(owner),
            is_enabled=not disabled,
            scanned=scanned,
        )
        with audit.act(None, "add image") as made:
            made.append(image := enter(entered))
        kick_scheduler()
        for problem in scanned.labels.problems if scanned else ():
            self.stderr.write(f"{reference}: {problem}")
        self.stdout.write(f"{image} is registered as {reference} for {image.owner or 'everybody'}.")

    def _scan(self, references: Sequence[str], **options: Any) -> None:
        known = {image.reference: image for image in Image.objects.filter(removed_at=None)}
        failed = []
        for reference in references or known:
            try:
                scanned = scan(reference)
            except ScanError as error:
                failed.append(reference)
                self.stderr.write(str(error))
                continue
            if image := known.get(reference):
                with audit.act(None, "scan image", image):
                    record(image, scanned)
            self.stdout.write(json.dumps(_described(reference, scanned)))
        if failed:
            raise CommandError(f"{len(failed)} of {len(references or known)} could not be scanned")

    def _pull(self, reference: str, host: Sequence[str], no_wait: bool, **options: Any) -> None:
        image = _registered(reference)
        if not pulls.can_be_pulled(image):
            raise CommandError(f"No registry has {image}: `manage.py build_images` on a host builds what it lacks.")
        hosts = _hosts(host)
        pulls.request(image, hosts)
        audit.record(None, "pull image", image, {"hosts": (None, audit.as_text("hosts", hosts))})
        self.stdout.write(f"{reference} is pulled to {', '.join(each.name for each in hosts)}.")
        if not no_wait:
            self._follow(ImagePull.objects.filter(image=image, host__in=hosts).select_related("host"))

    def _follow(self, requested: QuerySet[ImagePull]) -> None:
        """Show how the pulls go until all have ended; raise CommandError when one failed."""
        shown: dict[int, str] = {}
        while True:
            rows = list(requested.all())
            for pull in rows:
                text = f"{pull.host}: {pull.detail or PullState(pull.state).label}"
                if shown.get(pull.pk) != text:
                    shown[pull.pk] = text
                    self.stdout.write(text)
            left = [pull for pull in rows if pull.state not in ENDED]
            if not left:
                break
            if all(pull.host.status != HostStatus.READY for pull in left):
                raise CommandError(f"{', '.join(pull.host.name for pull in left)}: not ready; pulled when it returns")
            time.sleep(POLL_SECONDS)
        if failed := [pull.host.name for pull in rows if pull.state == PullState.FAILED]:
            raise CommandError(f"not pulled to {', '.join(failed)}")

    def _remove(self, reference: str, **options: Any) -> None:
        image = _registered(reference)
        try:
            with audit.act(None, "remove image", image):
                private_images.delete(image, actor=None)
        except RejectedError as error:
            raise CommandError(" ".join(error.errors.values())) from error
        self.stdout.write(f"{image} is no longer offered. Hosts keep what they have of an image that a registry has.")

    def _print(self, rows: Sequence[Sequence[str]]) -> None:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())


def _described(reference: str, scanned: ScannedImage) -> dict[str, Any]:
    """Return what a scan tells, for people and programs."""
    labels = asdict(scanned.labels)
    labels["min_fgpu"] = None if scanned.labels.min_fgpu is None else fgpu_text(scanned.labels.min_fgpu)
    places = {"from": "engine" if scanned.is_here else "registry", "size": scanned.size_bytes}
    return {"reference": reference, **labels, "architectures": scanned.architectures, **places}


def _registered(reference: str) -> Image:
    rows = Image.objects.filter(reference__in=spellings(reference), removed_at=None)
    image = rows.exclude(source=ImageSource.UNLISTED).first() or rows.first()
    if image is None:
        raise CommandError(f"no image is registered as {reference}; `manage.py images list` shows all")
    return image


def _hosts(names: Sequence[str]) -> list[Host]:
    hosts = Host.objects.filter(name__in=names) if names else Host.objects.filter(status=HostStatus.READY)
    found = list(hosts.order_by("name"))
    if unknown := sorted(set(names) - {host.name for host in found}):
        raise CommandError(f"no host is called {', '.join(unknown)}")
    if not found:
        raise CommandError("no host is ready")
    return found


def _user(email: str) -> User:
    user = User.objects.filter(email__iexact=email).first()
    if user is None:
        raise CommandError(f"no user has the address {email}")
    return user
