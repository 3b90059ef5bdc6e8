"""What keeps the administration's pages quick with many rows and with an empty cache."""

import re

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import Membership, User
from gpuplatform.administration import short_filters
from gpuplatform.tests.admin_pages import text_of, url
from resources.models import ResourceGroup
from sessions.models import Session
from tests.factories import make_group, make_host, make_project, make_user, run_session

SCRIPT = re.compile(r"<script\b[^>]*\bsrc=[^>]*>")
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("rows", "is_offered"), [(2, True), (1, False)])
def test_a_filter_offers_few_rows_alone(
    superadmin: Client, monkeypatch: pytest.MonkeyPatch, rows: int, is_offered: bool
) -> None:
    monkeypatch.setattr(short_filters, "MAX_CHOICES", rows)
    hosts = [make_host(name=f"gpu-{number}") for number in (1, 2)]
    names = [run_session(host=host, name=f"on-{host.name}").name for host in hosts]
    address = url(Session, "changelist")
    assert ("?host__id__exact=" in text_of(superadmin.get(address))) == is_offered
    for query in ({"host__id__exact": hosts[0].pk}, {"q": hosts[0].name}):
        found = text_of(superadmin.get(address, query))
        assert [name in found for name in names] == [True, False]


@pytest.mark.parametrize("page", ["changelist", "add", "change"])
@pytest.mark.parametrize("model", [User, ResourceGroup])
def test_scripts_do_not_delay_the_first_paint(superadmin: Client, model: type[Model], page: str) -> None:
    row = make_group() if model is ResourceGroup else User.objects.get()
    scripts = SCRIPT.findall(text_of(superadmin.get(url(model, page, *([row.pk] if page == "change" else [])))))
    assert len(scripts) > 10
    waited_for = [each for each in scripts if not re.search(r"\b(defer|async|type=\"module\")", each)]
    assert len(waited_for) == 1
    assert "theme.js" in waited_for[0]


def test_browsers_keep_the_words_of_scripts(superadmin: Client) -> None:
    response = superadmin.get(reverse("admin:jsi18n"))
    assert set(response["Cache-Control"].split(", ")) == {"private", "max-age=86400"}
    assert "Cookie" in response["Vary"]


def test_members_of_a_project_cost_one_statement_each(superadmin: Client) -> None:
    project = make_project(make_user(), name="vision")
    address = url(type(project), "change", project.pk)
    superadmin.get(address)  # which content types are read in
    with CaptureQueriesContext(connection) as few:
        superadmin.get(address)
    Membership.objects.bulk_create(Membership(project=project, user=make_user()) for _ in range(3))
    with CaptureQueriesContext(connection) as many:
        superadmin.get(address)
    assert len(many) == len(few) + 3  # of the field that searches users


def test_sessions_are_ordered_before_their_owners_are_fetched(superadmin: Client) -> None:
    host = make_host()
    names = [run_session(host=host, name=f"train-{number}").name for number in range(3)]
    with CaptureQueriesContext(connection) as captured:
        found = text_of(superadmin.get(url(Session, "changelist")))
    assert all(name in found for name in names)
    (listing,) = [each["sql"] for each in captured if 'created_at" DESC' in each["sql"]]
    assert "JOIN" not in listing
