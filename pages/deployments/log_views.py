"""The output of a deployment's replicas as one log: its page, and the download."""

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.requests import UserRequest, signed_in_page
from deployments import logs
from pages.deployments.queries import may_revise, visible_deployment
from pages.log_panel.panel import PAGE_LINES, download, read_shown
from sessions.errors import RejectedError


@signed_in_page
def deployment_logs(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Show the last lines of all replicas, or one; return only the text to htmx, and 204 where that has it already."""
    deployment, replica = _deployment(request, deployment_id), request.GET.get("replica", "")
    is_final = deployment.ended_at is not None
    output = read_shown(_reader(deployment, replica), PAGE_LINES, is_final=is_final)
    if request.htmx and request.GET.get("digest") == output.digest:
        return HttpResponse(status=204)
    query = f"?{urlencode({'replica': replica})}" if replica else ""
    context = {
        **output.context(is_final=is_final),
        "log_url": reverse("deployments:logs", args=[deployment.pk]) + query,
        "log_download_url": reverse("deployments:logs-download", args=[deployment.pk]) + query,
        "is_log_page": True,
        "deployment": deployment,
        "replica": replica,
        "names": [session.name for session in logs.chosen(deployment)],
    }
    return render(request, "sessions/_logs.html" if request.htmx else "deployments/logs.html", context)


@signed_in_page
def download_logs(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Send the output as a text file."""
    deployment = _deployment(request, deployment_id)
    return download(_reader(deployment, request.GET.get("replica", "")), f"{deployment.name}-{deployment.pk}")


def _deployment(request: UserRequest, deployment_id: str) -> Any:
    """Return the deployment. Raises Http404 for users who may not read what its replicas write."""
    deployment = visible_deployment(request, deployment_id)
    if not may_revise(request.user, deployment):
        raise Http404
    return deployment


def _reader(deployment: Any, replica: str) -> Any:
    """Return what reads the output. Raises Http404 for a replica that there is not."""
    if not replica.isprintable():  # such as NUL, which no text of the database has
        raise Http404
    try:
        logs.chosen(deployment, replica)
    except RejectedError as error:
        raise Http404 from error
    return partial(logs.read, deployment, replica=replica)
