"""COMPUTE_TRUSTED_PROXIES decides whose `X-Forwarded-For` is believed, by the platform's pages as by apps."""

from pathlib import Path

import pytest
import requests
from axes.models import AccessAttempt

from tests.live import serving
from tests.wait import SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.loopback]

HERE, CLAIMED = "127.0.0.1", "203.0.113.5"


@pytest.mark.parametrize(
    ("proxies", "noted"), [("", "127.0.0.1"), ("127.0.0.0/8", CLAIMED), ("10.0.0.0/8", "127.0.0.1")]
)
def test_only_trusted_proxies_name_the_client_of_a_login(tmp_path: Path, proxies: str, noted: str) -> None:
    with serving(tmp_path / "web.log", COMPUTE_TRUSTED_PROXIES=proxies) as server:
        wrong = {"email": "ada@example.org", "password": "guessed"}
        headers = {"X-Forwarded-For": CLAIMED}
        requests.post(f"{server.url}/api/v1/auth/token/", json=wrong, headers=headers, timeout=SECONDS)
    assert [attempt.ip_address for attempt in AccessAttempt.objects.all()] == [noted]
