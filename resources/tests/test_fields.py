"""A typed amount means the same on every page and in the API."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.test import RequestFactory
from rest_framework import serializers

from accounts.models import ResourcePolicy
from pages.launch.forms import LaunchForm
from resources.amounts.fields import (
    FgpuField,
    FgpuFormField,
    SizeField,
    SizeFormField,
    SpanField,
    SpanFormField,
)
from resources.amounts.units import GIB, MIB
from resources.models import Image, Preset
from sessions.launching.serializers import LaunchRequestSerializer
from tests.factories import make_user

HOUR = timedelta(hours=1)
SIZES = [("4g", 4 * GIB), ("4 GiB", 4 * GIB), ("512m", 512 * MIB), ("1.5g", 3 * GIB // 2), ("100 B", 100)]
FORM_FIELDS: dict[str, Callable[[], Any]] = {
    "launch memory": lambda: LaunchForm.base_fields["memory"],
    "launch shared memory": lambda: LaunchForm.base_fields["shared_memory"],
    "preset memory": lambda: admin_field(Preset, "memory"),
    "preset shared memory": lambda: admin_field(Preset, "shared_memory"),
    "image memory": lambda: admin_field(Image, "min_memory"),
    "policy memory": lambda: admin_field(ResourcePolicy, "memory"),
}


def admin_field(model: Any, name: str) -> Any:
    """Return the field of this name in the form by which administrators add a row of `model`."""
    request = RequestFactory().get("/")
    request.user = make_user(is_superuser=True, is_staff=True)
    return admin.site.get_model_admin(model).get_form(request).base_fields[name]


@pytest.mark.django_db
@pytest.mark.parametrize("place", FORM_FIELDS)
def test_every_form_reads_sizes_as_the_api_does(place: str) -> None:
    field = FORM_FIELDS[place]()
    for text, size in SIZES:
        assert field.to_python(text) == SizeField().to_internal_value(text) == size


@pytest.mark.django_db
@pytest.mark.parametrize("place", FORM_FIELDS)
@pytest.mark.parametrize("text", ["4", "1.5", " 64 ", "0"])
def test_every_form_refuses_a_size_without_unit(place: str, text: str) -> None:
    with pytest.raises(ValidationError, match="has no unit; write for example 4g or 512m"):
        FORM_FIELDS[place]().to_python(text)


@pytest.mark.parametrize("name", ["memory", "shared_memory"])
def test_a_number_in_the_api_is_bytes(name: str) -> None:
    field = LaunchRequestSerializer().fields[name]
    assert field.to_internal_value(4) == field.to_internal_value("4") == 4


@pytest.mark.parametrize(("text", "milli"), [("4", 4000), ("0.35", 350), (" .5 ", 500)])
def test_fgpu_means_the_same_everywhere(text: str, milli: int) -> None:
    assert FgpuFormField().to_python(text) == FgpuField().to_internal_value(text) == milli


@pytest.mark.parametrize(("text", "span"), [("90m", 1.5 * HOUR), ("4h", 4 * HOUR), ("2d", 48 * HOUR)])
def test_spans_mean_the_same_everywhere(text: str, span: timedelta) -> None:
    assert SpanFormField().to_python(text) == SpanField().to_internal_value(text) == span


def test_a_span_without_unit_is_refused_as_text() -> None:
    with pytest.raises(ValidationError, match="write for example 90m"):
        SpanFormField().to_python("4")
    with pytest.raises(serializers.ValidationError, match="write for example 90m"):
        SpanField().to_internal_value("4")
    assert SpanField().to_internal_value(60) == timedelta(minutes=1)


@pytest.mark.parametrize("size", [0, 1, 1024, 5 * GIB + 1, 1536 * MIB, 4 * GIB, 2**50])
def test_a_shown_size_is_read_back_exactly(size: int) -> None:
    field = SizeFormField()
    assert field.to_python(field.prepare_value(size)) == size


@pytest.mark.parametrize("field", [SizeFormField(required=False), FgpuFormField(required=False)])
@pytest.mark.parametrize("text", ["", "  ", None])
def test_an_empty_amount_is_none(field: Any, text: str | None) -> None:
    assert field.clean(text) is None
