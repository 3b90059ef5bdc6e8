"""Policies may demand a second factor."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0014_audit_source"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepolicy",
            name="require_second_factor",
            field=models.BooleanField(
                default=False,
                help_text="Who has none must set one up before anything else; of a project's policy, all of its members",
                verbose_name="demand a second factor",
            ),
        ),
    ]
