"""Pools of hosts that a provider makes, and those hosts; a change of what those who wait are told has it read anew."""

import datetime
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from decimal import Decimal
from django.db import migrations, models


TRIGGERS = """
CREATE TRIGGER note_pool AFTER INSERT OR DELETE ON resources_elasticpool
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_pool_change AFTER UPDATE ON resources_elasticpool FOR EACH ROW
    WHEN ((OLD.is_enabled, OLD.host_types, OLD.max_hosts, OLD.problem, OLD.retry_at)
          IS DISTINCT FROM (NEW.is_enabled, NEW.host_types, NEW.max_hosts, NEW.problem, NEW.retry_at))
    EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_elastic_host AFTER INSERT ON resources_elastichost
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_elastic_state AFTER UPDATE ON resources_elastichost FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0021_cluster_host_network'), ('compute', '0004_change_log'),
    ]

    operations = [
        migrations.CreateModel(
            name='ElasticPool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('is_enabled', models.BooleanField(default=True, help_text='Otherwise no hosts are made; idle ones go', verbose_name='enabled')),
                ('provider', models.CharField(help_text='What makes the hosts: command', max_length=16)),
                ('configuration', models.JSONField(blank=True, default=dict, help_text='Of the provider, as the documentation of its kind says')),
                ('host_types', models.JSONField(default=list, help_text='What the provider can make', verbose_name='types of hosts')),
                ('min_hosts', models.PositiveSmallIntegerField(default=0, help_text='Made without need, and kept', validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='hosts at least')),
                ('max_hosts', models.PositiveSmallIntegerField(default=1, help_text='Coming ones included', validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='hosts at most')),
                ('hosts_per_hour', models.PositiveSmallIntegerField(default=10, help_text='How many may be asked for within an hour', validators=[django.core.validators.MinValueValidator(1)])),
                ('cost_per_hour', models.DecimalField(blank=True, decimal_places=3, help_text='Of all its hosts together; empty: no limit', max_digits=9, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0'))], verbose_name='cost per hour at most')),
                ('cool_down', models.DurationField(default=datetime.timedelta(seconds=600), help_text='A host that is idle for this long is given back', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))])),
                ('give_up_after', models.DurationField(default=datetime.timedelta(seconds=900), help_text='A host that has not joined by then is given back', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))])),
                ('back_off', models.DurationField(default=datetime.timedelta(seconds=60), help_text='Pause after a host that did not come; each further one doubles it, up to an hour', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))])),
                ('failures', models.PositiveSmallIntegerField(default=0, editable=False, help_text='Hosts in a row that did not come')),
                ('problem', models.CharField(blank=True, editable=False, help_text='Why the last one did not come', max_length=300)),
                ('retry_at', models.DateTimeField(blank=True, editable=False, help_text='No host is asked for before', null=True)),
                ('group', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='elastic_pool', to='resources.resourcegroup')),
            ],
            options={
                'ordering': ('group__name',),
            },
        ),
        migrations.CreateModel(
            name='ElasticHost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Of the host, and in what the provider lists', max_length=64, unique=True)),
                ('type_name', models.CharField(max_length=32, verbose_name='type')),
                ('cost_per_hour', models.DecimalField(decimal_places=3, max_digits=9)),
                ('state', models.CharField(choices=[('REQUESTED', 'requested'), ('CREATING', 'creating'), ('JOINING', 'joining'), ('UP', 'up'), ('DRAINING', 'draining'), ('DELETING', 'deleting'), ('ENDED', 'ended'), ('FAILED', 'failed')], db_index=True, default='REQUESTED', max_length=9)),
                ('reason', models.CharField(blank=True, help_text='Why it is in this state', max_length=300)),
                ('has_failed', models.BooleanField(default=False, help_text='It did not come, or was lost')),
                ('identifier', models.CharField(blank=True, help_text="The provider's own", max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('state_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('joined_at', models.DateTimeField(null=True)),
                ('idle_since', models.DateTimeField(null=True)),
                ('ends_at', models.DateTimeField(help_text='When its provider takes it back by itself', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('host', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='elastic_host', to='resources.host')),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='hosts', to='resources.elasticpool')),
            ],
            options={
                'ordering': ('-created_at', 'name'),
            },
        ),
        migrations.AddConstraint(
            model_name='elasticpool',
            constraint=models.CheckConstraint(condition=models.Q(('min_hosts__lte', models.F('max_hosts'))), name='pool_min_hosts_within_max'),
        ),
        migrations.RunSQL(TRIGGERS, migrations.RunSQL.noop),  # they go with their tables
    ]
