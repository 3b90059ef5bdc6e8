"""The data folders that a session mounts."""

from django.db import models

from folders.models import Folder
from sessions.models.session import Session


class Mount(models.Model):
    """A data folder at a path in the session's container."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="mounts")
    folder = models.ForeignKey(
        Folder, on_delete=models.SET_NULL, null=True, related_name="mounts", help_text="Empty once it was deleted"
    )
    folder_name = models.CharField(max_length=64, help_text="As it was at launch")
    path = models.CharField(max_length=255, help_text="In the container, absolute")
    is_read_only = models.BooleanField("read only", default=False)
    is_automatic = models.BooleanField("automatic", default=False, help_text="Because the folder's name begins with .")
    is_held_read_only = models.BooleanField(
        "held read-only", default=False, help_text="At present, since the folder's owner exceeds their storage quota"
    )
    problem = models.CharField(max_length=300, blank=True, help_text="Why it is not mounted; empty: it is")

    class Meta:
        ordering = ("path",)
        constraints = (models.UniqueConstraint(fields=("session", "path"), name="mount_path_unique_in_session"),)

    def __str__(self) -> str:
        return f"{self.folder_name} at {self.path}"
