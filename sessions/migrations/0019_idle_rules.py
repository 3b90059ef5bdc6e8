"""Rules on idle sessions, their warnings, and the figures on which they rest."""

import datetime
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


RULE = "Unused for a day"


def add_rule(apps, schema_editor):
    """Begin with a rule for everybody."""
    day, hour = datetime.timedelta(days=1), datetime.timedelta(hours=1)
    apps.get_model("compute", "IdleRule").objects.create(
        name=RULE, is_enabled=True, idle_timeout=day, warning=hour, max_snooze=day
    )


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0008_projects'),
        ('compute', '0018_preemption'),
        ('resources', '0015_preemption'),
    ]

    operations = [
        migrations.CreateModel(
            name='IdleRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('is_enabled', models.BooleanField(default=False, help_text='Look first at what it would have ended last week', verbose_name='enabled')),
                ('idle_timeout', models.DurationField(blank=True, help_text='Of interactive sessions: no use by terminal, SSH or apps for this long, and nothing computed', null=True, validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=600)), django.core.validators.MaxValueValidator(limit_value=datetime.timedelta(days=7))])),
                ('low_use_window', models.DurationField(blank=True, help_text='It used less than the limits below on average over this long, whether somebody looks or not', null=True, validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=600)), django.core.validators.MaxValueValidator(limit_value=datetime.timedelta(days=7))])),
                ('low_use_cpu_percent', models.PositiveSmallIntegerField(blank=True, help_text='Of its cores', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)], verbose_name='low use of CPU (%)')),
                ('low_use_gpu_percent', models.PositiveSmallIntegerField(blank=True, help_text='Of its share; no matter without a GPU. Where CPU has a limit too, it must use less of both.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)], verbose_name='low use of GPU (%)')),
                ('warning', models.DurationField(default=datetime.timedelta(seconds=1800), help_text='The owner is warned, and the session goes on for this long, or for good if it is used again', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60)), django.core.validators.MaxValueValidator(limit_value=datetime.timedelta(days=7))])),
                ('max_snooze', models.DurationField(default=datetime.timedelta(0), help_text='How long owners may put that off in all each time they are warned; 0: not at all', validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(0)), django.core.validators.MaxValueValidator(limit_value=datetime.timedelta(days=7))])),
                ('action', models.CharField(choices=[('end', 'end it'), ('park', 'park it; where that is not possible, end it')], default='end', help_text='With an idle session', max_length=8)),
                ('policies', models.ManyToManyField(blank=True, help_text='Of the owners of the sessions, or of their projects; none: of all', related_name='idle_rules', to='accounts.resourcepolicy')),
                ('projects', models.ManyToManyField(blank=True, help_text='Of the sessions; none: of all, and of none', related_name='idle_rules', to='accounts.project')),
                ('resource_groups', models.ManyToManyField(blank=True, help_text='In which the sessions run; none: in all', related_name='idle_rules', to='resources.resourcegroup')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='IdleNotice',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='idle_notice', serialize=False, to='compute.session')),
                ('cause', models.CharField(help_text='In words', max_length=200)),
                ('warned_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ends_at', models.DateTimeField()),
                ('snoozed', models.DurationField(default=datetime.timedelta(0), help_text='By how much its owner has put the end off')),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='compute.idlerule')),
            ],
        ),
        migrations.CreateModel(
            name='UsageDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField(db_index=True)),
                ('measured_seconds', models.PositiveIntegerField(help_text='In which its CPU is known')),
                ('idle_seconds', models.PositiveIntegerField(help_text='In which it was neither used nor computed')),
                ('cpu_milli_seconds', models.BigIntegerField(verbose_name='CPU used (thousandths of a core, seconds)')),
                ('fgpu_milli_seconds', models.BigIntegerField(help_text='While its use is known', verbose_name='GPU held (milli-fGPU seconds)')),
                ('fgpu_milli_seconds_idle', models.BigIntegerField(help_text='While it used less than 1 %', verbose_name='of that idle')),
                ('fgpu_milli_seconds_used', models.BigIntegerField(verbose_name='of that used')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='usage_days', to='compute.session')),
            ],
        ),
        migrations.CreateModel(
            name='UsagePeriod',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(help_text='When the five minutes begin')),
                ('cpu_milli', models.PositiveIntegerField(null=True, verbose_name='CPU (thousandths of a core)')),
                ('cpu_percent', models.FloatField(null=True, verbose_name='CPU (% of its cores)')),
                ('fgpu', models.PositiveIntegerField(help_text='That it held', verbose_name='milli-fGPU')),
                ('gpu_percent', models.FloatField(null=True, verbose_name='GPU (% of its share)')),
                ('network_bytes', models.PositiveBigIntegerField(null=True, verbose_name='received and sent (bytes per second)')),
                ('was_used', models.BooleanField(help_text='By terminal, SSH or an app')),
                ('is_idle', models.BooleanField(help_text='Neither used nor computing, and all of that is known')),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='usage_periods', to='compute.session')),
            ],
        ),
        migrations.AddConstraint(
            model_name='idlerule',
            constraint=models.CheckConstraint(condition=models.Q(('idle_timeout__isnull', False), ('low_use_window__isnull', False), _connector='OR'), name='idle_rule_has_a_limit', violation_error_message='Give an idle timeout, or a window of low use.'),
        ),
        migrations.AddConstraint(
            model_name='idlerule',
            constraint=models.CheckConstraint(condition=models.Q(('low_use_window', None), models.Q(('low_use_cpu_percent__isnull', False), ('low_use_gpu_percent__isnull', False), _connector='OR'), _connector='XOR'), name='idle_rule_low_use_is_whole', violation_error_message='Low use takes a window, and a limit for CPU, GPU or both.'),
        ),
        migrations.AddIndex(
            model_name='idlenotice',
            index=models.Index(fields=['ends_at'], name='idle_notice_ends_at'),
        ),
        migrations.AddConstraint(
            model_name='usageday',
            constraint=models.UniqueConstraint(fields=('session', 'day'), name='usage_day_once'),
        ),
        migrations.AddIndex(
            model_name='usageperiod',
            index=models.Index(fields=['at'], name='usage_period_at'),
        ),
        migrations.AddConstraint(
            model_name='usageperiod',
            constraint=models.UniqueConstraint(fields=('session', 'at'), name='usage_period_once'),
        ),
        migrations.RunPython(add_rule, migrations.RunPython.noop),
    ]
