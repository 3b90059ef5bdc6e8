"""When hosts are expected, whether providers answer, and how long parked sessions keep a host."""

import datetime
import django.core.validators
from django.db import migrations, models

TRIGGERS = """
DROP TRIGGER note_pool_change ON resources_elasticpool;
CREATE TRIGGER note_pool_change AFTER UPDATE ON resources_elasticpool FOR EACH ROW
    WHEN ((OLD.is_enabled, OLD.host_types, OLD.max_hosts, OLD.problem, OLD.retry_at{more_old})
          IS DISTINCT FROM (NEW.is_enabled, NEW.host_types, NEW.max_hosts, NEW.problem, NEW.retry_at{more_new}))
    EXECUTE FUNCTION compute_note_all();
DROP TRIGGER note_elastic_state ON resources_elastichost;
CREATE TRIGGER note_elastic_state AFTER UPDATE ON resources_elastichost FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state{or_late}) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0022_elastic_hosts'),
    ]

    operations = [
        migrations.AddField(
            model_name='elastichost',
            name='expected_at',
            field=models.DateTimeField(help_text='When it is expected to take sessions; null: it is late', null=True),
        ),
        migrations.AddField(
            model_name='elasticpool',
            name='max_parked_time',
            field=models.DurationField(db_default=datetime.timedelta(days=7), default=datetime.timedelta(days=7), help_text='A session parked on one of its hosts ends after this, or by its policy, so that the host can go', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))], verbose_name='parked sessions for at most'),
        ),
        migrations.AddField(
            model_name='elasticpool',
            name='silence',
            field=models.CharField(blank=True, db_default='', editable=False, help_text='What its provider said instead', max_length=300),
        ),
        migrations.AddField(
            model_name='elasticpool',
            name='silent_since',
            field=models.DateTimeField(blank=True, editable=False, help_text='Since when its provider has not answered', null=True),
        ),
        migrations.RunSQL(
            TRIGGERS.format(
                more_old=", OLD.silent_since",
                more_new=", NEW.silent_since",
                or_late=" OR OLD.expected_at IS DISTINCT FROM NEW.expected_at",
            ),
            TRIGGERS.format(more_old="", more_new="", or_late=""),
        ),
    ]
