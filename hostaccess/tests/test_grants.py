"""What a host may do in the database is listed completely, so that a new column is a decision and no accident."""

import pytest
from django.apps import apps

from hostaccess.grants import GRANTS, TableGrant

MODELS = {str(model._meta.db_table): model for model in apps.get_models(include_auto_created=True)}
WHAT_TO_DO = """{table}: {names}.
A host that has joined may use only the columns that hostaccess/grants.py names. Add each new column to `read` of its
table if the host worker or the gateway may read it (and to `update` if they change it). If it is a secret or of no use
to them, add it to `withheld`, and leave it out of their queries by only() or defer(). Remove those that are gone."""


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: grant.table)
def test_every_column_is_granted_or_withheld(grant: TableGrant) -> None:
    columns = {str(field.column) for field in MODELS[grant.table]._meta.concrete_fields}
    assert columns == grant.columns, WHAT_TO_DO.format(table=grant.table, names=sorted(columns ^ grant.columns))
    assert set(grant.update.split()) <= set(grant.read.split())
    assert not set(grant.read.split()) & set(grant.withheld.split())


def test_each_table_is_granted_once() -> None:
    assert len({grant.table for grant in GRANTS}) == len(GRANTS)


def test_no_table_of_credentials_is_granted() -> None:
    secret = {"accounts_apitoken", "accounts_loginsession", "accounts_sshkey", "django_session", "compute_ticket"}
    secret |= {
        "compute_sharelink",
        "compute_revocation",
        "hostaccess_hostaccess",
        "django_admin_log",
        "webhooks_webhook",
        "imports_importcredential",
    }
    assert secret <= MODELS.keys()
    assert not secret & {grant.table for grant in GRANTS}
