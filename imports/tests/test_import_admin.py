"""Imports in the administration: shown, cancelled after a question, and never changed."""

import pytest
from django.test import Client

from imports import credentials, services
from imports.models import Import, ImportState
from imports.requests import ImportRequest
from imports.tests.making import ADDRESS, make_world
from tests.factories import make_user

pytestmark = pytest.mark.django_db
ADMIN = "/admin/imports"


def test_superadmins_see_and_cancel_imports(client: Client) -> None:
    client.force_login(make_user(is_superuser=True))
    owner = make_world()[0]
    look = services.look(owner, ImportRequest(address=ADDRESS))
    credential = credentials.add_token(owner, name="hub", host="github.com", token="s3cret")
    for base, row in ((f"{ADMIN}/import/", look), (f"{ADMIN}/importcredential/", credential)):
        assert client.get(base).status_code == 200
        page = client.get(f"{base}{row.pk}/change/").content.decode()
        assert 'name="_save"' not in page
        assert "secret" not in page.lower()
        assert client.get(f"{base}add/").status_code == 403
    chosen = {"action": "cancel", "_selected_action": [look.pk]}
    asked = client.post(f"{ADMIN}/import/", chosen).content.decode()
    assert "removed" in asked
    assert Import.objects.get().state == ImportState.WAITING
    client.post(f"{ADMIN}/import/", {**chosen, "confirmed": "yes"})
    assert Import.objects.get().state == ImportState.CANCELLED
