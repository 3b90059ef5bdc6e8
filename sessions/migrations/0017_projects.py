"""Sessions may belong to projects, whose limits and weights the scheduler follows like those of users."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


NOTED = ("policy_id", "share_weight", "is_active")
OLD, NEW = (", ".join(f"{row}.{name}" for name in NOTED) for row in ("OLD", "NEW"))
NOTE = f"""
CREATE TRIGGER note_update AFTER UPDATE ON accounts_project FOR EACH ROW
    WHEN (({OLD}) IS DISTINCT FROM ({NEW})) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    """Adds the column and the trigger."""

    dependencies = [
        ('accounts', '0008_projects'),
        ('compute', '0016_group_choices'),
        ('resources', '0014_grants_to_projects'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='session',
            name='project',
            field=models.ForeignKey(blank=True, db_index=False, help_text='Whose limits apply as well, and whose managers see and end it', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='sessions', to='accounts.project'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('project__isnull', False)), fields=['project', '-created_at'], name='session_project_created'),
        ),
        migrations.RunSQL(NOTE, "DROP TRIGGER note_update ON accounts_project"),
    ]
