"""The CPU overcommit factor of a resource group, as superadmins set it."""

from decimal import Decimal

import pytest

from accounts.models import AuditEntry
from resources.models import ResourceGroup
from tests.api import CheckedClient, client_of
from tests.factories import make_group, make_user

pytestmark = pytest.mark.django_db

GROUPS = "/api/v1/admin/resource-groups/"


@pytest.fixture
def client() -> CheckedClient:
    return client_of(make_user(is_superuser=True))


@pytest.mark.parametrize("factor", [0, -1, 0.99, 32.01, 1e9, 1.001, "NaN", "Infinity", "four", None, ""])
def test_a_bad_overcommit_factor_is_refused_at_its_field(client: CheckedClient, factor: object) -> None:
    group = make_group(cpu_overcommit=Decimal(2))
    refused = client.patch(f"{GROUPS}{group.pk}/", {"cpu_overcommit": factor})
    assert (refused.status_code, refused.json()["errors"].keys()) == (400, {"cpu_overcommit"})
    assert ResourceGroup.objects.get(pk=group.pk).cpu_overcommit == 2


def test_an_overcommit_factor_is_set_and_recorded(client: CheckedClient) -> None:
    group = make_group()
    changed = client.patch(f"{GROUPS}{group.pk}/", {"cpu_overcommit": 2.5})
    assert changed.json()["cpu_overcommit"] == "2.50"
    assert AuditEntry.objects.latest("id").changes == {"cpu_overcommit": ["1.00", "2.50"]}
