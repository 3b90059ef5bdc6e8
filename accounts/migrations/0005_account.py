"""API tokens with names, the login sessions of users, and the key of the SSH servers."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


COPY_TOKENS = """
INSERT INTO accounts_apitoken (digest, token_key, user_id, created, expiry, uid, name, scope)
SELECT digest, token_key, user_id, created, expiry, gen_random_uuid(), '', 'full' FROM knox_authtoken
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0003_extensions'),
        ('accounts', '0004_user_language'),
        ('knox', '0009_extend_authtoken_field'),
        ('sessions', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LoginSession',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_seen_at', models.DateTimeField(default=django.utils.timezone.now, help_text='To within five minutes')),
                ('address', models.GenericIPAddressField(blank=True, null=True)),
                ('agent', models.CharField(blank=True, max_length=300, verbose_name='User-Agent')),
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='login', to='sessions.session')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='logins', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('-last_seen_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='SshHostKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('singleton', models.BooleanField(default=True, editable=False, unique=True)),
                ('text', models.TextField(help_text="One line in OpenSSH's format", verbose_name='public key')),
                ('fingerprint', models.CharField(max_length=64)),
                ('recorded_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name': 'SSH host key',
                'constraints': [models.CheckConstraint(condition=models.Q(('singleton', True)), name='ssh_host_key_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('digest', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('token_key', models.CharField(db_index=True, help_text='Its first characters', max_length=25)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('expiry', models.DateTimeField(blank=True, null=True)),
                ('uid', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('name', models.CharField(blank=True, help_text='Empty for one got by e-mail and password', max_length=64)),
                ('scope', models.CharField(choices=[('full', 'everything that I may do'), ('read', 'only reading')], default='full', max_length=4)),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='auth_token_set', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ('-created', 'digest'),
                'constraints': [models.UniqueConstraint(condition=models.Q(('name', ''), _negated=True), fields=('user', 'name'), name='token_name_unique')],
            },
        ),
        migrations.RunSQL(COPY_TOKENS, migrations.RunSQL.noop),
    ]
