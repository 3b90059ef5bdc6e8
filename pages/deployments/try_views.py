"""The page on which a deployment is tried: a chat for servers of OpenAI's API, a form of requests for others.

The browser sends its requests to the deployment's own address, with a token that it gets here and keeps in memory.
"""

import re
from typing import Any, Final

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables

from accounts.requests import UserRequest, signed_in_act, signed_in_page
from deployments.access import trials
from deployments.addresses import tried_origin
from deployments.models import Deployment
from pages.deployments.examples import is_openai
from pages.deployments.queries import visible_deployment
from sessions.errors import RejectedError
from sessions.models import SESSION_ID

MAX_BESIDE: Final = 3  # deployments that are compared with the first
MAX_OFFERED: Final = 100
CHAT, REQUEST = "chat", "request"


@signed_in_page
def try_it(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Show the chat, or the form of a request, also where `as` asks for it; `with` names others to stand beside."""
    deployment = _live(request, deployment_id)
    asked = request.GET.get("as")
    kind = asked if asked in (CHAT, REQUEST) else CHAT if is_openai(deployment) else REQUEST
    beside = _beside(request, deployment) if kind == CHAT else []
    targets = [_target(each) for each in (deployment, *beside) if tried_origin(each)]
    context = {
        "deployment": deployment,
        "kind": kind,
        "beside": beside,
        "offered": _offered(request, deployment, beside) if kind == CHAT and len(beside) < MAX_BESIDE else [],
        "targets": targets,
    }
    response = render(request, "deployments/try.html", context)
    response._csp_update = {"connect-src": [target["url"] for target in targets]}  # type: ignore[attr-defined]
    return response


@signed_in_act
@sensitive_variables("made")
def token(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Return a token of an hour, in the place of the one that the user had."""
    deployment = _live(request, deployment_id)
    try:
        made = trials.trial_token(deployment, actor=request.user)
    except RejectedError as error:
        raise Http404 from error  # it has ended meanwhile
    return JsonResponse({"token": made.secret})


def _live(request: UserRequest, deployment_id: str) -> Any:
    """Return the deployment. Raises Http404 for users who may not see it, and once it has ended."""
    deployment = visible_deployment(request, deployment_id)
    if deployment.ended_at:
        raise Http404
    return deployment


def _beside(request: UserRequest, deployment: Deployment) -> list[Deployment]:
    """Return the deployments that `with` names in their order, as far as the user may use them."""
    given = dict.fromkeys(pk for pk in request.GET.getlist("with") if re.fullmatch(SESSION_ID, pk))
    named = [pk for pk in given if pk != deployment.pk][:MAX_BESIDE]
    found = _usable(request).in_bulk(named)
    return [found[pk] for pk in named if pk in found]


def _offered(request: UserRequest, deployment: Deployment, beside: list[Deployment]) -> list[Deployment]:
    shown = [deployment.pk, *(each.pk for each in beside)]
    return list(_usable(request).exclude(pk__in=shown).order_by("name", "pk")[:MAX_OFFERED])


def _usable(request: UserRequest) -> Any:
    return Deployment.objects.visible_to(request.user).live().select_related("revision__variant")


def _target(deployment: Deployment) -> dict[str, str]:
    """Return what the page's scripts know of a deployment."""
    return {
        "id": deployment.pk,
        "name": deployment.name,
        "url": tried_origin(deployment),
        "token": reverse("deployments:try-token", args=(deployment.pk,)),
    }
