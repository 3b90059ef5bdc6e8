"""Actions of the administration that ask first: what is chosen, whose it is, and what becomes of it."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise

Admin = TypeVar("Admin", bound="admin.ModelAdmin[Any]")
Action = Callable[[Admin, HttpRequest, QuerySet[Any]], None]


def confirmed(
    consequence: Promise, whose: Callable[[Sequence[Any]], Sequence[object]]
) -> Callable[[Action[Admin]], Callable[[Admin, HttpRequest, QuerySet[Any]], HttpResponse | None]]:
    """Decorate an action, so that it is carried out once a page that lists the chosen rows was confirmed.

    `whose` returns, for all rows, what the page says beside each.
    """

    def decorate(action: Action[Admin]) -> Callable[[Admin, HttpRequest, QuerySet[Any]], HttpResponse | None]:
        @wraps(action)
        def ask(model_admin: Admin, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
            if "confirmed" in request.POST:
                action(model_admin, request, chosen)
                return None
            rows = list(chosen)
            context = {
                **model_admin.admin_site.each_context(request),
                "title": ask.short_description,  # type: ignore[attr-defined]  # by `admin.action`
                "opts": model_admin.opts,
                "action": action.__name__,
                "consequence": consequence,
                "rows": list(zip(rows, whose(rows), strict=True)),
            }
            return render(request, "admin/confirm_action.html", context)

        return ask

    return decorate
