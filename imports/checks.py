"""System check of imports."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from imports.fetcher.public_addresses import networks_of


@register
def networks(app_configs: Any, **_kwargs: Any) -> list[CheckMessage]:
    """Return an error where COMPUTE_IMPORT_NETWORKS has what is no network."""
    try:
        networks_of(settings.COMPUTE_IMPORT_NETWORKS)
    except ValueError as error:
        return [Error(f"COMPUTE_IMPORT_NETWORKS: {error}", id="imports.E001")]
    return []
