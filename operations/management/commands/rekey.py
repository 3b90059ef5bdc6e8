"""`manage.py rekey`: after a change of SECRET_KEY, lets the old one go."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import audit
from accounts.second_factors import factor_secrets
from hostaccess import keys
from imports import credentials as import_credentials
from resources.models import Installation
from resources.registries import credentials
from webhooks.delivery import stored_secrets


class Command(BaseCommand):
    """All or nothing; in the audit log."""

    help = "Encrypt every secret in the database with the current SECRET_KEY; see docs/backup.md."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        """Encrypt, and say how many; raise CommandError with what is wrong."""
        try:
            counts = {
                "passwords of registries": credentials.rekey(),
                "keys of hosts": keys.rekey(),
                "second factors": factor_secrets.rekey(),
                "secrets of webhooks": stored_secrets.rekey(),
                "import credentials": import_credentials.rekey(),
            }
        except (credentials.CredentialsError, keys.HostKeyError) as error:
            raise CommandError(str(error)) from error
        changes = {what: (None, str(count)) for what, count in counts.items()}
        audit.record(None, "encrypt again", Installation.objects.get_or_create()[0], changes)
        text = ", ".join(f"{count} {what}" for what, count in counts.items())
        self.stdout.write(f"Encrypted with this SECRET_KEY: {text}.")
