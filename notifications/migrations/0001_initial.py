"""The tables of notifications, preferences and announcements."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the tables."""

    initial = True

    dependencies = [
        ('compute', '0010_extensions'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Announcement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.CharField(max_length=500)),
                ('level', models.PositiveSmallIntegerField(choices=[(1, 'information'), (2, 'warning'), (3, 'outage')], default=1)),
                ('starts_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='shown from')),
                ('ends_at', models.DateTimeField(blank=True, help_text='Empty: until it is deleted', null=True, verbose_name='shown until')),
                ('created_by', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-starts_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='Dismissal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('announcement', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dismissals', to='notifications.announcement')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddField(
            model_name='announcement',
            name='dismissed_by',
            field=models.ManyToManyField(editable=False, related_name='+', through='notifications.Dismissal', to=settings.AUTH_USER_MODEL),
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='What it tells of; a user is told of it once', max_length=80)),
                ('kind', models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED')], max_length=16)),
                ('facts', models.JSONField(default=dict, help_text='What its text needs')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('on_page', models.BooleanField()),
                ('in_browser', models.BooleanField()),
                ('by_email', models.BooleanField()),
                ('shown_at', models.DateTimeField(help_text='When a page or a browser showed it', null=True)),
                ('read_at', models.DateTimeField(null=True)),
                ('email_due_at', models.DateTimeField(help_text='When to send it, or to try again; empty: not at all', null=True)),
                ('email_attempts', models.PositiveSmallIntegerField(default=0)),
                ('emailed_at', models.DateTimeField(null=True)),
                ('email_problem', models.CharField(blank=True, max_length=200)),
                ('session', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='compute.session')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='NotificationPreference',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED')], max_length=16)),
                ('on_page', models.BooleanField(default=True)),
                ('in_browser', models.BooleanField(default=True)),
                ('by_email', models.BooleanField(default=False)),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notification_preferences', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddConstraint(
            model_name='dismissal',
            constraint=models.UniqueConstraint(fields=('announcement', 'user'), name='dismissal_once'),
        ),
        migrations.AddConstraint(
            model_name='announcement',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at', None), ('ends_at__gt', models.F('starts_at')), _connector='OR'), name='announcement_ends_after_start', violation_error_message='It must end after it starts.'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('on_page', True)), fields=['user', '-id'], name='notification_list'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('on_page', True), ('read_at', None)), fields=['user'], name='notification_unread'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('shown_at', None)), fields=['user'], name='notification_unshown'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('email_due_at__isnull', False)), fields=['email_due_at'], name='notification_mail'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(fields=['created_at'], name='notification_age'),
        ),
        migrations.AddConstraint(
            model_name='notification',
            constraint=models.UniqueConstraint(fields=('user', 'key'), name='notification_once'),
        ),
        migrations.AddConstraint(
            model_name='notificationpreference',
            constraint=models.UniqueConstraint(fields=('user', 'kind'), name='preference_one_per_kind'),
        ),
    ]
