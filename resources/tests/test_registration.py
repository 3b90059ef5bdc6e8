"""Entering images into the table: by the catalogue, again and again."""

from dataclasses import asdict, replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from resources.amounts.units import GIB
from resources.images.catalogue.apps import AppEntry
from resources.images.catalogue.catalog import Entry
from resources.images.catalogue.recipes import Recipe
from resources.images.registration import CatalogChange, register_entry
from resources.models import App, Image

pytestmark = pytest.mark.django_db

RECIPE = Recipe(suite="bookworm", packages=())
ENTRY = Entry(
    environment="Python",
    version="3.11",
    reference="lab/python:3.11",
    description="for all",
    min_cpu=2,
    min_memory=GIB,
    min_fgpu=500,
    min_gpu_memory=16 * GIB,
    is_default=True,
    recipe=None,
)


def test_a_new_entry_is_registered_with_all_fields() -> None:
    assert register_entry(ENTRY) is CatalogChange.ADDED
    row = Image.objects.get()
    assert (row.environment, row.version, row.reference, row.description) == (
        "Python",
        "3.11",
        "lab/python:3.11",
        "for all",
    )
    assert (row.min_cpu, row.min_memory, row.min_fgpu, row.is_default, row.is_enabled) == (2, GIB, 500, True, True)
    assert row.min_gpu_memory == 16 * GIB


def test_an_entry_says_what_it_runs_on() -> None:
    entry = replace(ENTRY, accelerators="cuda", architecture="amd64", enable_hint="Ask.", recipe=RECIPE)
    register_entry(entry, enable=False)
    row = Image.objects.get()
    assert (row.accelerators, row.architecture, row.enable_hint) == ("cuda", "amd64", "Ask.")
    assert (row.source, row.is_enabled) == ("catalog", False)


def test_registering_again_changes_nothing() -> None:
    register_entry(ENTRY)
    assert register_entry(ENTRY) is CatalogChange.UNCHANGED
    assert Image.objects.count() == 1


def test_a_changed_entry_updates_its_row() -> None:
    register_entry(ENTRY)
    key = Image.objects.get().pk
    assert register_entry(replace(ENTRY, reference="lab/python:3.11-2", min_memory=2 * GIB)) is CatalogChange.UPDATED
    row = Image.objects.get()
    assert (row.pk, row.reference, row.min_memory) == (key, "lab/python:3.11-2", 2 * GIB)


def test_what_an_administrator_switched_off_stays_off() -> None:
    register_entry(ENTRY)
    Image.objects.update(is_enabled=False, is_default=False)
    assert register_entry(replace(ENTRY, description="new")) is CatalogChange.UPDATED
    row = Image.objects.get()
    assert (row.description, row.is_enabled, row.is_default) == ("new", False, False)


def test_a_new_version_does_not_change_the_default() -> None:
    register_entry(ENTRY)
    register_entry(replace(ENTRY, version="3.13", reference="lab/python:3.13"))
    assert list(Image.objects.values_list("version", "is_default")) == [("3.11", True), ("3.13", False)]


APP = AppEntry(
    name="web",
    title="Web",
    icon="chart",
    port=8080,
    command="exec serve",
    readiness_path="/health",
    start_path="/start",
    token_variable="WEB_TOKEN",
    hint="Serves what is in ~/web",
    warm_up=True,
)
WITH_APPS = replace(ENTRY, apps=(APP, replace(APP, name="other", title="Other")))


def test_an_entrys_apps_are_registered_in_order() -> None:
    assert register_entry(WITH_APPS) is CatalogChange.ADDED
    web, other = App.objects.all()
    assert {name: getattr(web, name) for name in asdict(APP)} == asdict(APP)
    assert (other.name, other.position) == ("other", 1)
    assert register_entry(WITH_APPS) is CatalogChange.UNCHANGED


def test_registration_keeps_apps_that_admins_changed() -> None:
    register_entry(ENTRY)
    assert register_entry(WITH_APPS) is CatalogChange.UPDATED
    App.objects.get(name="other").delete()
    App.objects.update(command="mine")
    assert register_entry(replace(WITH_APPS, description="new")) is CatalogChange.UPDATED
    assert list(App.objects.values_list("name", "command")) == [("web", "mine")]


def test_an_entry_can_be_added_disabled() -> None:
    register_entry(ENTRY, enable=False)
    assert not Image.objects.get().is_enabled


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reference": "no tag"}, "reference"),
        ({"reference": "lab/python:3.11"}, "reference"),
        ({"environment": ""}, "environment"),
        ({"version": "x" * 65}, "version"),
        ({"min_memory": -1}, "min_memory"),
    ],
)
def test_a_bad_entry_is_refused_at_its_field(changes: dict[str, Any], field: str) -> None:
    register_entry(ENTRY)
    other = replace(ENTRY, reference="lab/r:4.4", environment="R", version="4.4")
    with pytest.raises(ValidationError) as caught:
        register_entry(replace(other, **changes))
    assert list(caught.value.message_dict) == [field]
    assert Image.objects.count() == 1
