"""What a user has chosen for the list of sessions."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from accounts.models import User


class ListColumns(models.Model):
    """The columns of the list that a user sees; without a row the default ones."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    columns = ArrayField(models.CharField(max_length=16), default=list, blank=True)

    def __str__(self) -> str:
        return ", ".join(self.columns)
