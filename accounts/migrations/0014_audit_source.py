"""Who did an act may be a command, and by what it was done is stored."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0013_wording"),
    ]

    operations = [
        migrations.RenameField("auditentry", "actor_email", "actor_name"),
        migrations.AlterField(
            model_name="auditentry",
            name="actor_name",
            field=models.CharField(
                editable=False,
                help_text="The e-mail address as it was then; of a command the operating system's user and host",
                max_length=254,
                verbose_name="who",
            ),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="source",
            field=models.CharField(
                choices=[("page", "page"), ("api", "API"), ("command", "command")],
                default="page",
                editable=False,
                max_length=7,
                verbose_name="interface",
            ),
        ),
    ]
