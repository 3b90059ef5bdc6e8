"""The page of the credentials that open private sources."""

from urllib.parse import quote

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters

from accounts.requests import UserRequest, signed_in_act, signed_in_form
from imports import credentials
from imports.models import ImportCredential
from pages.imports.forms import CredentialForm


@sensitive_post_parameters("secret")
@signed_in_form
def credential_list(request: UserRequest) -> HttpResponse:
    """List the user's credentials, or add one; then go on to where the user came from."""
    form = CredentialForm(request.POST if request.method == "POST" else None)
    way_back = request.POST.get("next", "") or request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(way_back, allowed_hosts=None):
        way_back = ""
    if form.is_bound and form.is_valid() and (added := form.save(request.user)):
        if added.public_key:
            messages.success(request, _("The key %(name)s is there. Add its public half at %(host)s.") % _names(added))
        else:
            messages.success(request, _("The token %(name)s is stored for %(host)s.") % _names(added))
            if way_back:
                return redirect(f"{way_back}{'&' if '?' in way_back else '?'}credential={added.pk}")
        return redirect(f"{request.path}?next={quote(way_back)}" if way_back else request.path)
    context = {"form": form, "credentials": request.user.import_credentials.all(), "next": way_back}
    return render(request, "imports/credentials.html", context, status=422 if form.is_bound else 200)


@signed_in_act
def delete(request: UserRequest, credential_id: int) -> HttpResponse:
    """Delete one of the user's credentials."""
    gone = get_object_or_404(request.user.import_credentials, pk=credential_id)
    credentials.delete(gone)
    messages.success(request, _("The credential %(name)s is deleted.") % {"name": gone.name})
    return redirect("imports:credentials")


def _names(added: ImportCredential) -> dict[str, str]:
    return {"name": added.name, "host": added.host}
