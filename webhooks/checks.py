"""A system check of the setting of webhooks."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from webhooks.destinations import networks_of


@register
def check_networks(**kwargs: Any) -> list[CheckMessage]:
    """Return an error where COMPUTE_WEBHOOK_NETWORKS has what is no network."""
    try:
        networks_of(settings.COMPUTE_WEBHOOK_NETWORKS)
    except ValueError as error:
        return [Error(f"COMPUTE_WEBHOOK_NETWORKS: {error}", id="webhooks.E001")]
    return []
