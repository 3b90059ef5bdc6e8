"""The platform's URLs, a page without content and a view of the API that does nothing: what any of them costs."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response

from gpuplatform.urls import urlpatterns as platform_patterns
from restapi.views import ApiView


@login_required
def empty(request: HttpRequest) -> HttpResponse:
    """Show the frame alone."""
    return render(request, "base.html")


class PlainView(ApiView):
    """What any response of the API costs."""

    def get(self, request: Request) -> Response:
        """Return a constant."""
        return Response({"ok": True})


urlpatterns = [path("bench/empty/", empty), path("bench/plain/", PlainView.as_view()), *platform_patterns]
