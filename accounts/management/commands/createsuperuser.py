"""`manage.py createsuperuser`: Django's command, with an entry in the audit log."""

from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from accounts import audit
from accounts.models import User


class Command(createsuperuser.Command):
    """Makes a superadmin."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the account, and record it."""
        newest = User.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        with audit.act(None, "create superadmin") as made:
            super().handle(*args, **options)
            made.extend(User.objects.filter(pk__gt=newest, is_superuser=True))
