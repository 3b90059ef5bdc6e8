"""Addresses and texts of the administration's pages."""

from collections.abc import Sequence

from django.db.models import Model
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import reverse


def url(model: type[Model], page: str, *args: object) -> str:
    """Return the address of a page of a model's administration."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def text_of(page: HttpResponseBase) -> str:
    """Return the page as text."""
    assert isinstance(page, HttpResponse)
    return page.content.decode()


def confirm(client: Client, address: str, action: str, rows: Sequence[object]) -> str:
    """Carry out an action that asks first, at the address of a list, and return the list as text."""
    body = {"action": action, "_selected_action": rows, "confirmed": "yes"}
    return text_of(client.post(address, body, follow=True))
