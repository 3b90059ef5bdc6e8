"""The pages in Korean: they are rendered, and their headings are translated."""

import re

import pytest

from tests.factories import make_host, make_image, make_session, make_user, run_session
from tests.web import browser_of

PATHS = ("/", "/sessions/", "/sessions/launch/", "/folders/", "/environments/", "/hosts/", "/accounts/", "/help/")


@pytest.mark.django_db
def test_every_page_has_a_korean_heading() -> None:
    user = make_user(is_superuser=True)
    host = make_host(gpus=1)
    make_image()
    session = run_session(owner=user, host=host, fgpu=500)
    waiting = make_session(owner=user, resource_group=host.group)
    client = browser_of(user)
    for path in (*PATHS, f"/sessions/{waiting.pk}/terminate/", f"/sessions/{session.pk}/logs/"):
        response = client.get(path, headers={"accept-language": "ko"}, follow=True)
        page = response.content.decode()
        assert response.status_code == 200, path
        assert '<html lang="ko">' in page, path
        assert (
            re.search(r"<h[12][^>]*>[^<]*[가-힣]", page.replace("</svg>", "").replace("</use>", "")) or "도움말" in page
        ), path
