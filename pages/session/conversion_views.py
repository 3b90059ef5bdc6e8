"""Pages that save a session as an image: what it would hold, the dialog, and the list of one's images."""

from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts.requests import UserRequest, signed_in_form, signed_in_page
from pages.session.conversion_forms import ConvertForm
from pages.session.dialogs import done, render_dialog
from sessions.conversion import change_reports, private_images
from sessions.conversion import services as conversions
from sessions.errors import RejectedError
from sessions.models import Conversion, Session

PAGE_SIZE = 25


@signed_in_form
def convert(request: UserRequest, session_id: str) -> HttpResponse:
    """Show what would be saved and ask for a name; POST begins. htmx gets the dialog alone."""
    session = _convertible(request, session_id)
    form = ConvertForm(session, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and (conversion := form.save(request.user)):
        text = f"{session.name} is being saved as {conversion.name}:{conversion.tag}."
        return done(request, text, "sessions:converting", session)
    context = {
        "session": session,
        "form": form,
        "changes": change_reports.request(session),
        "repository": conversions.reference_of(session.owner, "NAME", "TAG").partition("NAME")[0],
    }
    is_refused = form.is_bound and not request.htmx  # which shows only what succeeds
    return render_dialog(request, "convert", context, is_refused=is_refused)


@signed_in_page
def changes(request: UserRequest, session_id: str) -> HttpResponse:
    """Show what has changed in the session's container; asked for again until its host has looked."""
    session = _convertible(request, session_id)
    return render(request, "sessions/_changes.html", {"session": session, "changes": change_reports.request(session)})


@signed_in_page
def recipe(request: UserRequest, conversion_id: UUID) -> HttpResponse:
    """Send the Dockerfile that repeats what an image adds to the one that its session ran."""
    visible = Conversion.objects.filter(session__in=Session.objects.operable_by(request.user))
    conversion = get_object_or_404(visible.exclude(recipe=""), pk=conversion_id)
    response = HttpResponse(conversion.recipe, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{conversion.name}-{conversion.tag}.Dockerfile"'
    return response


@signed_in_page
def image_list(request: UserRequest) -> HttpResponse:
    """Show the images that were made of the user's sessions; of everybody's to a superadmin."""
    page = Paginator(private_images.visible_to(request.user), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "most": request.user.policy.max_private_images}
    return render(request, "sessions/private_images.html", context)


@signed_in_form
def delete_image(request: UserRequest, image_id: int) -> HttpResponse:
    """Ask for confirmation, or delete an image that was made of a session."""
    image = get_object_or_404(private_images.visible_to(request.user), pk=image_id)
    if request.method == "POST":
        try:
            private_images.delete(image, actor=request.user)
            messages.success(request, f"{image.reference} is deleted.")
        except RejectedError as error:
            messages.error(request, str(error))
        return redirect("sessions:private-images")
    return render_dialog(request, "delete_image", {"image": image})


def _convertible(request: UserRequest, session_id: str) -> Session:
    """Return the session; raise Http404 unless the user may see it and turn it into an image."""
    visible = Session.objects.operable_by(request.user).select_related(
        "owner__policy", "project__policy", "image", "host"
    )
    session = get_object_or_404(visible, pk=session_id)
    if not conversions.may_convert(request.user, session):
        raise Http404
    return session
