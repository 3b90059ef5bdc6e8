"""Webhooks are told of an array, by its notification, and not of the sessions of its tasks."""

from importlib import import_module

from django.db import migrations

BEFORE = import_module("webhooks.migrations.0003_clusters").NOW
ALONE = "WHERE CASE\n"
assert ALONE in BEFORE
NOW = BEFORE.replace(ALONE, "WHERE NOT session.is_task AND CASE\n")


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0003_clusters"), ("compute", "0034_array_tasks")]
    operations = [
        migrations.RunSQL(
            NOW.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
            BEFORE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
        )
    ]
