"""Ports of a session are forwarded to the user's machine: by OpenSSH's client, to real programs in a real image."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from django.conf import settings

from accounts.credentials.ssh_keys import add_ssh_key
from sessions.models import Session
from sshserver.forward_channel import RELAY
from sshserver.tests.ssh_client import SshClient
from tests.containers import Container, running_container
from tests.factories import make_host, run_session
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.ports import free_port
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, until
from tests.workers import is_listening, ssh_server

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

APP = """
import socketserver
class App(socketserver.StreamRequestHandler):
    def handle(self):
        data = self.rfile.read()
        self.wfile.write(b"%d bytes " % len(data) + data)
socketserver.ThreadingTCPServer(("127.0.0.1", 9000), App).serve_forever()
"""


@pytest.fixture
def session() -> Session:
    """A running session without a container as yet."""
    return run_session(host=make_host(name=settings.COMPUTE_HOST_NAME))


@pytest.fixture
def client(tmp_path: Path, session: Session) -> Iterator[SshClient]:
    """The session's owner, with a key that the platform knows."""
    client = SshClient(tmp_path, free_port())
    add_ssh_key(session.owner, client.new_key())
    with ssh_server(client.port, settings.COMPUTE_HOST_NAME):
        yield client


@contextmanager
def forwarded(client: SshClient, session: Session, target: str) -> Iterator[int]:
    """Forward a port of this machine to the target, and yield it."""
    port = free_port()
    command = client.command(session.pk, "-N", "-L", f"127.0.0.1:{port}:{target}")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as forwarding:
        try:
            until(lambda: is_listening(port))
            yield port
        finally:
            forwarding.kill()  # told to end while it begins to wait, ssh would wait for the next keepalive


def asked(port: int, said: bytes) -> bytes:
    """Return all that comes back for all that is said."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) as connection:
        try:
            connection.sendall(said)
            with suppress(OSError):  # ENOTCONN, where the other side has reset the connection meanwhile
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:
            return b""


def in_container(container: Container, session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(container_id=container.id)


def test_forwarding_reaches_loopback_of_the_session_only(client: SshClient, session: Session) -> None:
    ensure_python_image()
    with running_container(PYTHON_IMAGE) as container:
        in_container(container, session)
        app = container.client.exec_create(container.id, ["python3", "-c", APP])["Id"]
        container.client.exec_start(app, detach=True)
        content = bytes(range(256)) * 8000
        with forwarded(client, session, "localhost:9000") as port:
            until(lambda: asked(port, b"x") == b"1 bytes x")
            assert asked(port, content) == b"%d bytes " % len(content) + content
            until(lambda: not any(RELAY[:20] in line for line in container.processes()))
        for target in ("localhost:9001", f"127.0.0.1:{client.port}", "192.0.2.1:9000", "169.254.169.254:80"):
            with forwarded(client, session, target) as port:
                assert asked(port, b"SSH-2.0-x\r\n") == b""


def test_forwarding_without_python_says_so(client: SshClient, session: Session) -> None:
    with running_container(ensure_tiny_image()) as container:
        in_container(container, session)
        command = client.command(session.pk, "-v", "-W", "localhost:9000")
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert "the image has no Python, which forwarding takes" in done.stderr
