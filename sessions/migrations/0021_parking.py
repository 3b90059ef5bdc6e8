"""Sessions that are parked: live, bound to the host that saved their container, and without a lease.

What a session has used in fair share is charged when it is parked as well; `started_at` is then empty, so that its end
charges nothing again.
"""

import django.db.models.deletion
from django.db import migrations, models

CHARGE_PARKED = """
CREATE TRIGGER charge_parked AFTER UPDATE OF started_at ON compute_session FOR EACH ROW
    WHEN (NEW.status = 'PARKED' AND OLD.started_at IS NOT NULL) EXECUTE FUNCTION compute_charge_use();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('compute', '0020_group_lifetime'),
        ('resources', '0015_preemption'),
        ('accounts', '0011_parking'),
    ]

    operations = [
        migrations.RunSQL(CHARGE_PARKED, "DROP TRIGGER charge_parked ON compute_session"),
        migrations.RemoveConstraint(
            model_name='session',
            name='session_live_name_unique',
        ),
        migrations.RemoveConstraint(
            model_name='session',
            name='session_final_has_end',
        ),
        migrations.AddField(
            model_name='session',
            name='is_parking',
            field=models.BooleanField(default=False, editable=False, help_text='It is being stopped to be parked'),
        ),
        migrations.AddField(
            model_name='session',
            name='parked_attempt',
            field=models.PositiveIntegerField(default=0, editable=False, help_text='The attempt whose container was saved last; 0: it was never parked'),
        ),
        migrations.AddField(
            model_name='session',
            name='parked_bytes',
            field=models.PositiveBigIntegerField(default=0, editable=False, help_text='What its saved containers had written, which counts as its disk'),
        ),
        migrations.AddField(
            model_name='session',
            name='parked_on',
            field=models.ForeignKey(blank=True, db_index=False, editable=False, help_text='The host that saved its container, on which alone it can be resumed', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='parked_sessions', to='resources.host'),
        ),
        migrations.AlterField(
            model_name='session',
            name='status',
            field=models.CharField(choices=[('PENDING', 'pending'), ('SCHEDULED', 'scheduled'), ('PREPARING', 'preparing'), ('RUNNING', 'running'), ('TERMINATING', 'terminating'), ('PARKED', 'parked'), ('TERMINATED', 'terminated'), ('CANCELLED', 'cancelled'), ('ERROR', 'error')], default='PENDING', editable=False, max_length=16),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('ended_at', None), ('parked_on__isnull', False)), fields=['parked_on'], name='session_parked_on_host'),
        ),
        migrations.AddConstraint(
            model_name='session',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['PARKED', 'PENDING', 'PREPARING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), fields=('owner', 'name'), name='session_live_name_unique'),
        ),
        migrations.AddConstraint(
            model_name='session',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'PARKED'), _negated=True), models.Q(('host', models.F('parked_on')), ('parked_attempt__gt', 0), ('started_at', None)), _connector='OR'), name='session_parked_on_its_host'),
        ),
        migrations.AddConstraint(
            model_name='session',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', False), ('status__in', ['CANCELLED', 'ERROR', 'TERMINATED'])), models.Q(('ended_at', None), ('status__in', ['PARKED', 'PENDING', 'PREPARING', 'RUNNING', 'SCHEDULED', 'TERMINATING'])), _connector='OR'), name='session_final_has_end'),
        ),
    ]
