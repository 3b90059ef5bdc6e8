"""Addresses in lower case, and a row of django-allauth's for each account, which counts as verified."""

from django.db import migrations

LOWER = "UPDATE accounts_user SET email = lower(email) WHERE email <> lower(email)"
ADDRESSES = """
INSERT INTO account_emailaddress (user_id, email, verified, "primary")
SELECT id, email, true, true FROM accounts_user ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):

    dependencies = [
        ('account', '0009_emailaddress_unique_primary_email'),
        ('accounts', '0008_projects'),
    ]

    operations = [
        migrations.RunSQL(LOWER, migrations.RunSQL.noop),
        migrations.RunSQL(ADDRESSES, migrations.RunSQL.noop),
    ]
