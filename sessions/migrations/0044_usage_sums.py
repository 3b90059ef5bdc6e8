"""Sums of days that are over, and a note by whatever statement changes the record of such a day later.

In the very transaction that does so: whoever reads sums does not see the one without the other. What happens now costs
the condition of a trigger.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# The whole life of the session is summed again: what is held is between two changes.
CORRECT = """
CREATE FUNCTION compute_correct_usage() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO compute_usagecorrection (since, until)
    SELECT (created_at AT TIME ZONE 'UTC')::date, (coalesce(ended_at, now()) AT TIME ZONE 'UTC')::date
    FROM compute_session WHERE id = to_jsonb(NEW) ->> TG_ARGV[0];
    RETURN NULL;
END $$;
CREATE TRIGGER correct_usage AFTER INSERT ON compute_sessionevent FOR EACH ROW
    WHEN (NEW.at < date_trunc('day', now(), 'UTC') AND NEW.old_status <> NEW.new_status)
    EXECUTE FUNCTION compute_correct_usage('session_id');
CREATE TRIGGER correct_usage_again AFTER UPDATE ON compute_sessionevent FOR EACH ROW
    WHEN (least(OLD.at, NEW.at) < date_trunc('day', now(), 'UTC'))
    EXECUTE FUNCTION compute_correct_usage('session_id');
CREATE TRIGGER correct_usage AFTER INSERT OR UPDATE ON compute_pastsize FOR EACH ROW
    WHEN (NEW.until < date_trunc('day', now(), 'UTC')) EXECUTE FUNCTION compute_correct_usage('session_id');
CREATE TRIGGER correct_usage AFTER INSERT OR UPDATE ON compute_usageday FOR EACH ROW
    WHEN (NEW.day < (now() AT TIME ZONE 'UTC' - interval '3 hours')::date)
    EXECUTE FUNCTION compute_correct_usage('session_id');
CREATE TRIGGER correct_usage AFTER UPDATE ON compute_session FOR EACH ROW
    WHEN (OLD.created_at < date_trunc('day', now(), 'UTC')
          AND (OLD.owner_id, OLD.project_id, OLD.resource_group_id, OLD.not_before)
              IS DISTINCT FROM (NEW.owner_id, NEW.project_id, NEW.resource_group_id, NEW.not_before))
    EXECUTE FUNCTION compute_correct_usage('id');
CREATE FUNCTION compute_correct_lost_usage() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO compute_usagecorrection (since, until)
    SELECT (min(created_at) AT TIME ZONE 'UTC')::date, (max(coalesce(ended_at, now())) AT TIME ZONE 'UTC')::date
    FROM compute_session WHERE id IN (SELECT session_id FROM old_rows WHERE old_status <> new_status)
    HAVING min(created_at) < date_trunc('day', now(), 'UTC');
    RETURN NULL;
END $$;
CREATE TRIGGER correct_lost_usage AFTER DELETE ON compute_sessionevent
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_correct_lost_usage();
"""
DROP_CORRECT = "DROP FUNCTION compute_correct_usage() CASCADE; DROP FUNCTION compute_correct_lost_usage() CASCADE;"


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0018_max_array_tasks'),
        ('compute', '0043_estimates_by_limits'),
        ('resources', '0029_device_problem'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SummedDay',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            name='UsageCorrection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('since', models.DateField()),
                ('until', models.DateField(help_text='The last day')),
            ],
        ),
        migrations.CreateModel(
            name='UsageSum',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fgpu_milli_seconds', models.FloatField(db_default=0.0, verbose_name='milli-fGPU seconds')),
                ('weighted_fgpu_milli_seconds', models.FloatField(db_default=0.0, verbose_name='milli-fGPU seconds by weight')),
                ('cpu_seconds', models.FloatField(db_default=0.0, verbose_name='core seconds')),
                ('memory_byte_seconds', models.FloatField(db_default=0.0)),
                ('waiting_seconds', models.FloatField(db_default=0.0)),
                ('measured_fgpu_milli_seconds', models.FloatField(db_default=0.0, verbose_name='milli-fGPU seconds of known use')),
                ('idle_fgpu_milli_seconds', models.FloatField(db_default=0.0, verbose_name='of that idle')),
                ('day', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sums', to='compute.summedday')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                ('resource_group', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='resources.resourcegroup')),
            ],
        ),
        migrations.RunSQL(CORRECT, DROP_CORRECT),
    ]
