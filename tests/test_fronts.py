"""Whose word about a client's address is taken: by one setting, for the platform's pages as for apps."""

from pathlib import Path

import pytest
import requests
from axes.models import AccessAttempt

from tests.live import serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

HERE, CLAIMED = "127.0.0.1", "203.0.113.5"


@pytest.mark.parametrize(
    ("fronts", "noted"), [("", "127.0.0.1"), ("127.0.0.0/8", CLAIMED), ("10.0.0.0/8", "127.0.0.1")]
)
def test_a_failed_login_has_the_address_of_the_trusted_proxy(tmp_path: Path, fronts: str, noted: str) -> None:
    with serving(tmp_path / "web.log", COMPUTE_TRUSTED_PROXIES=fronts) as server:
        wrong = {"email": "ada@example.org", "password": "guessed"}
        requests.post(f"{server.url}/api/v1/auth/token/", json=wrong, headers={"X-Forwarded-For": CLAIMED}, timeout=30)
    assert [attempt.ip_address for attempt in AccessAttempt.objects.all()] == [noted]
