"""`manage.py changepassword`: Django's command, with an entry in the audit log."""

from typing import Any

from django.contrib.auth.management.commands import changepassword

from accounts import audit
from accounts.models import User


class Command(changepassword.Command):
    """Changes the password of a user."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        """Ask for the password and store it, and record that."""
        user = User.objects.filter(email__iexact=options["username"] or "").first()
        with audit.act(None, "change password", *filter(None, [user])):
            text: str | None = super().handle(*args, **options)
            return text
