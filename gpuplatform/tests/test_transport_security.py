"""For which names browsers are told to refuse plain HTTP."""

import runpy

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.middleware.security import SecurityMiddleware
from django.test import RequestFactory, override_settings

NAMES = ("SECURE_HSTS_SECONDS", "SECURE_HSTS_INCLUDE_SUBDOMAINS", "SECURE_HSTS_PRELOAD")


@pytest.mark.parametrize(
    ("chosen", "header"),
    [
        ({"COMPUTE_HTTPS": "true"}, "max-age=31536000"),
        ({"COMPUTE_HTTPS": "true", "COMPUTE_HSTS": "subdomains"}, "max-age=31536000; includeSubDomains"),
        ({"COMPUTE_HTTPS": "true", "COMPUTE_HSTS": "preload"}, "max-age=31536000; includeSubDomains; preload"),
        ({"COMPUTE_HSTS": "preload"}, None),
    ],
)
def test_names_below_the_sites_own_are_chosen(
    chosen: dict[str, str], header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPUTE_PUBLIC_URL", "https://gpu.example.org")
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    read = runpy.run_path(str(settings.BASE_DIR / "gpuplatform" / "settings.py"))
    with override_settings(**{name: read[name] for name in NAMES}):
        middleware = SecurityMiddleware(lambda _: HttpResponse())
        response = middleware.process_response(RequestFactory().get("/", secure=True), HttpResponse())
    assert response.headers.get("Strict-Transport-Security") == header
