"""A registry that answers badly is an error of the registry, whatever its answer; images are deleted by digest."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from resources.registries.client import RegistryError, delete, describe

pytestmark = [pytest.mark.loopback, pytest.mark.django_db]
DIGEST = f"sha256:{'a' * 64}"


class Registry(ThreadingHTTPServer):
    """Answers GET with `document` under a Content-Length of `length_bytes`; notes the requests."""

    document = b"{}"
    length_bytes: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []

    @property
    def reference(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}/team/image:1"


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.length_bytes or len(self.server.document)))
        self.end_headers()
        self.wfile.write(self.server.document)
        self.close_connection = True

    def do_DELETE(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_DELETE

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("document", "length_bytes"),
    [
        (b'{"schemaVersion": 1}', None),
        (b'{"manifests": [{"platform": {"os": "linux"}}]}', None),
        (b'{"manifests": ["x"]}', None),
        (b'{"config": "x"}', None),
        (b"[]", None),
        (b"not JSON", None),
        (b'{"config"', 1000),
    ],
    ids=["schema 1", "no architecture", "no entry", "no config", "no object", "no JSON", "broken off"],
)
def test_an_unusable_answer_is_the_registrys_error(
    registry: Registry, document: bytes, length_bytes: int | None
) -> None:
    registry.document, registry.length_bytes = document, length_bytes
    with pytest.raises(RegistryError, match=r"gives no usable answer|does not answer"):
        describe(registry.reference, "amd64")


def test_an_image_is_deleted_by_its_digest_not_its_tag(registry: Registry) -> None:
    delete(registry.reference, DIGEST)
    assert registry.requests == [f"DELETE /v2/team/image/manifests/{DIGEST}"]
