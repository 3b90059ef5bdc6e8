"""Projects, their members, and more limits of policies."""

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds them."""

    dependencies = [
        ('accounts', '0007_share_weights'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_per_launch',
            field=models.PositiveIntegerField(blank=True, help_text='Started by one click or request', null=True, verbose_name='sessions per launch'),
        ),
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_priority',
            field=models.SmallIntegerField(blank=True, help_text='Of a session, from 0 to 100; those that name none have 10, or this where it is lower', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100)], verbose_name='highest priority'),
        ),
        migrations.AddField(
            model_name='resourcepolicy',
            name='preemptible_only',
            field=models.BooleanField(default=False, help_text='Every session may be ended for others that wait, after a warning', verbose_name='preemptible sessions only'),
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('member', 'member: starts sessions'), ('manager', 'manager: also sees and ends the sessions of all members, and chooses the members')], default='member', max_length=8)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('project', 'user'),
            },
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Letters, digits and . _ -, such as vision-lab', max_length=64, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]*\\Z', 'Use letters, digits and . _ - and begin with a letter or digit.')])),
                ('description', models.CharField(blank=True, max_length=200)),
                ('share_weight', models.PositiveSmallIntegerField(default=100, help_text='In resource groups of fair order, where its sessions count for the project: 200 is due twice as much as 100', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(10000)])),
                ('is_active', models.BooleanField(default=True, help_text='An inactive project starts no sessions; those that run go on', verbose_name='active')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('members', models.ManyToManyField(related_name='projects', through='accounts.Membership', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(blank=True, help_text="Limits for the sessions of all members together; empty: those of each member's own policy alone", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='accounts.resourcepolicy')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.AddField(
            model_name='membership',
            name='project',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='accounts.project'),
        ),
        migrations.AddConstraint(
            model_name='project',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), name='project_name_unique_in_any_case'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('user', 'project'), name='membership_unique'),
        ),
    ]
