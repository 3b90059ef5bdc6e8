"""What a browser loads for its first page: small, and from the platform alone."""

import gzip
import json
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.templatetags.static import static

from tests.factories import make_host, make_user, run_session
from tests.web import browser_of

MAX_BYTES = 300_000
FILE = re.compile(r'<(?:script|link)\b[^>]*?\b(?:src|href)="([^"]+)"')
MODULE = re.compile(r'<script type="module"[^>]*?\bsrc="([^"]+)"')
IMPORT = re.compile(r'(?:\bfrom|\bimport)\s*\(?\s*"([^"]+)"')
MAP = re.compile(r'<script type="importmap"[^>]*>(.*?)</script>', re.DOTALL)


def content_of(address: str) -> bytes:
    """Return the static file at an address of a page."""
    found = finders.find(address.removeprefix(static("")).partition("?")[0])
    assert found, f"{address} is not the platform's own"
    return Path(str(found)).read_bytes()


def files_of(page: str) -> dict[str, bytes]:
    """Return the content of every file that the page loads, modules that modules import among them."""
    names: dict[str, str] = json.loads(MAP.findall(page)[0])["imports"]
    files = {address: content_of(address) for address in FILE.findall(page) if address.startswith(static(""))}
    waiting = MODULE.findall(page)
    while waiting:
        address = waiting.pop()
        files[address] = content_of(address)
        imported = [names.get(name, "") for name in IMPORT.findall(files[address].decode())]
        waiting += [each for each in imported if each and each not in files]
    return files


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/", "/sessions/", "/sessions/launch/", "/sessions/{session}/", "/hosts/", "/folders/"]
)
def test_a_first_page_is_small_and_all_our_own(path: str) -> None:
    session = run_session(host=make_host(), owner=make_user())
    response = browser_of(session.owner).get(path.format(session=session.pk), follow=True)
    page = response.content.decode()
    files = files_of(page)
    assert any("tabler" in address for address in files)
    assert any("live.js" in address for address in files)
    size = len(gzip.compress(page.encode())) + sum(len(gzip.compress(content)) for content in files.values())
    assert size < MAX_BYTES, {address: len(gzip.compress(content)) for address, content in files.items()}
