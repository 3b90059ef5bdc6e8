"""Pulls of images to hosts that an administrator asks for; the workers of the hosts do them."""

from collections.abc import Iterable

from django.utils import timezone

from resources.models import Host, Image, ImagePull, ImageSource, PullState


def can_be_pulled(image: Image) -> bool:
    """Return whether a registry may have the image: it is neither built on the hosts nor kept on some of them alone."""
    return image.source != ImageSource.CATALOG and not image.is_local


def request(image: Image, hosts: Iterable[Host]) -> None:
    """Have these hosts pull the image, again where they have pulled it before; they begin within seconds."""
    for host in hosts:
        waiting = {"state": PullState.WAITING, "detail": "", "requested_at": timezone.now()}
        ImagePull.objects.update_or_create(host=host, image=image, defaults=waiting)
