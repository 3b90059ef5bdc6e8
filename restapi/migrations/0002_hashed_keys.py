"""New keys are stored as HMACs alone; those that are there, in plain, are found until they are forgotten after a day."""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models


class Migration(migrations.Migration):
    """A process of the version before cannot store keys: its request is undone, and may be sent again."""

    dependencies = [("restapi", "0001_idempotency_keys")]

    operations = [
        AddConstraintNotValid(
            "idempotencykey",
            models.CheckConstraint(
                condition=models.Q(key__startswith="hmac-sha256 "), name="idempotency_key_is_hashed"
            ),
        ),
    ]
