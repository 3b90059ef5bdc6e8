"""The dialog that shows what runs as a spec file, and the file itself."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.requests import UserRequest, signed_in_page
from pages.deployments.queries import visible_deployment
from pages.session.queries import visible_session
from specs import export
from specs.export import SpecExport


@signed_in_page
def session_file(request: UserRequest, session_id: str) -> HttpResponse:
    """Show the session, or the cluster of which it is a member, as a spec file."""
    session = visible_session(request, session_id).main
    made = export.session_spec(session, request.user)
    return _file(request, made, session.name, reverse("sessions:detail", args=[session.pk]), session.owner_id)


@signed_in_page
def deployment_file(request: UserRequest, deployment_id: str) -> HttpResponse:
    """Show the deployment with its current revision as a spec file."""
    deployment = visible_deployment(request, deployment_id)
    made = export.deployment_spec(deployment, request.user)
    return _file(
        request, made, deployment.name, reverse("deployments:detail", args=[deployment.pk]), deployment.owner_id
    )


def _file(request: UserRequest, made: SpecExport, name: str, back: str, owner_id: int) -> HttpResponse:
    """Show the file, or with "download" send it."""
    if "download" in request.GET:
        headers = {"Content-Disposition": f'attachment; filename="{name}.yaml"'}
        return HttpResponse(made.text, content_type="application/yaml; charset=utf-8", headers=headers)
    context = {"made": made, "name": name, "back": back, "is_owner": owner_id == request.user.pk}
    return render(request, "sharing/_spec.html" if request.htmx else "sharing/spec.html", context)
