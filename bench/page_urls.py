"""The platform's URLs, and a page without content: what any page costs."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from gpuplatform.urls import urlpatterns as platform_patterns


@login_required
def empty(request: HttpRequest) -> HttpResponse:
    """Show the frame alone."""
    return render(request, "base.html")


urlpatterns = [path("bench/empty/", empty), *platform_patterns]
