"""The kinds of dependencies. The table is that of the many-to-many field before; what old code writes is `after_ok`."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("compute", "0034_array_tasks")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Dependency",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        (
                            "from_session",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="dependencies",
                                to="compute.session",
                            ),
                        ),
                        (
                            "to_session",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="links_of_dependents",
                                to="compute.session",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "compute_session_depends_on",
                        "verbose_name_plural": "dependencies",
                        "unique_together": {("from_session", "to_session")},
                    },
                ),
                migrations.AlterField(
                    model_name="session",
                    name="depends_on",
                    field=models.ManyToManyField(
                        blank=True,
                        help_text="Sessions for which it waits",
                        related_name="dependents",
                        through="compute.Dependency",
                        through_fields=("from_session", "to_session"),
                        to="compute.session",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="dependency",
            name="kind",
            field=models.CharField(
                choices=[
                    ("after", "after"),
                    ("after_ok", "after_ok"),
                    ("after_not_ok", "after_not_ok"),
                    ("after_any", "after_any"),
                ],
                db_default="after_ok",
                default="after_ok",
                max_length=16,
            ),
        ),
    ]
