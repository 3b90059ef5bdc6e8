"""The palette: in the dialog of any page, or a page of its own where scripts do not run."""

from django.http import HttpResponse
from django.shortcuts import render

from accounts.requests import UserRequest, signed_in_page
from pages.palette.found import MAX_CHARACTERS, search


@signed_in_page
def palette(request: UserRequest) -> HttpResponse:
    """Show the field with all pages and what `q` finds; htmx gets the dialog, or with `q` what was found alone."""
    query = request.GET.get("q", "")
    template = "palette/page.html"
    if request.headers.get("HX-Request"):
        template = "palette/_found.html" if "q" in request.GET else "palette/_dialog.html"
    context = {"query": query[:MAX_CHARACTERS], "kinds": search(request.user, query), "max_characters": MAX_CHARACTERS}
    return render(request, template, context)
