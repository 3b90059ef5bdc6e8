"""What users and projects have used of resource groups, for fair share."""

from django.db import models

from accounts.models import Project, User
from resources.models import ResourceGroup


class FairUse(models.Model):
    """What the ended sessions of a user, of one project or of none, have used of a group.

    Decayed to `at` by the group's half-life. A database trigger adds to it whenever a session ends that had started
    (`migrations/0022_fair_use_of_projects.py`).
    """

    group = models.ForeignKey(ResourceGroup, on_delete=models.CASCADE, related_name="fair_uses")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="fair_uses", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="fair_uses", db_index=False)
    cpu_seconds = models.FloatField("core seconds")
    memory_byte_seconds = models.FloatField()
    fgpu_milli_seconds = models.FloatField("milli-fGPU seconds")
    at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("user", "group", "project"), name="fair_use_one_per_association", nulls_distinct=False
            ),
        )

    def __str__(self) -> str:
        return f"{self.user_id} for {self.project_id} of {self.group_id} until {self.at}"
