"""The main navigation: who sees which entry, and which is marked."""

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import make_user, run_session

CURRENT = b'aria-current="page" href="%s"'


@pytest.mark.django_db
def test_administration_is_offered_to_staff_alone(client: Client) -> None:
    entry = f'href="{reverse("admin:index")}"'.encode()
    client.force_login(make_user())
    assert entry not in client.get("/sessions/").content
    client.force_login(make_user(is_superuser=True))
    assert entry in client.get("/sessions/").content


@pytest.mark.django_db
def test_usage_has_a_place_of_its_own(client: Client) -> None:
    client.force_login(make_user())
    assert CURRENT % b"/usage/" in client.get("/usage/").content
    assert b'href="/usage/"' in client.get("/sessions/").content


@pytest.mark.django_db
def test_navigation_marks_the_current_page_and_its_section(client: Client) -> None:
    session = run_session()
    client.force_login(session.owner)
    assert CURRENT % b"/sessions/" in client.get("/sessions/").content
    assert CURRENT % b"/sessions/launch/" in client.get("/sessions/launch/").content
    detail = client.get(f"/sessions/{session.pk}/").content
    assert CURRENT % b"/sessions/" not in detail
    assert b'class="site-link active" href="/sessions/"' in detail
