"""A host of repositories and files on 127.0.0.1: git's own server over HTTPS, with LFS, redirects and a password."""

import base64
import datetime
import hashlib
import ipaddress
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

BACKEND: Final = "/usr/lib/git-core/git-http-backend"
NAMES: Final = ("localhost", "repo.example", "other.example", "xn--rpo-bma.example")
_POINTER: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def git(where: Path, *arguments: str) -> str:
    """Run git in a directory as somebody who commits."""
    given = ("user.name=a", "user.email=a@example.org", "commit.gpgsign=false", "protocol.file.allow=always")
    options = [part for each in given for part in ("-c", each)]
    run = subprocess.run(
        ["git", *options, *arguments], cwd=where, check=True, capture_output=True, text=True, timeout=120
    )
    return run.stdout.strip()


class GitHost:
    """Repositories below `root`, files by their paths, and where redirects lead."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "repositories"
        self.root.mkdir(parents=True)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []  # (path, Authorization)
        self.token = ""  # that every request needs
        self.port = 0
        self.authorities = folder / "ca.pem"

    def url(self, path: str, name: str = "localhost") -> str:
        """Return the URL of a path here."""
        return f"https://{name}:{self.port}/{path}"

    def repository(self, name: str, files: dict[str, str | bytes]) -> Path:
        """Make a repository with these files in one commit; return the working copy that fills it."""
        copy = self.folder / "copies" / name
        copy.mkdir(parents=True)
        git(copy, "init", "-q", "-b", "main")
        for path, content in files.items():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes(content.encode() if isinstance(content, str) else content)
        git(copy, "add", "-A", "-f")
        git(copy, "commit", "-q", "--allow-empty", "-m", "first")
        self.publish(name)
        return copy

    def publish(self, name: str) -> None:
        """Have the repository here be as its working copy is."""
        bare = self.root / f"{name}.git"
        if not bare.exists():
            git(self.root, "init", "-q", "--bare", "-b", "main", str(bare))
            git(bare, "config", "uploadpack.allowFilter", "true")
            git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
            git(bare, "config", "http.receivepack", "false")
        git(self.folder / "copies" / name, "push", "-q", "--mirror", str(bare))

    def pointer(self, content: bytes) -> str:
        """Keep a large file, and return what a repository has in its place."""
        digest = hashlib.sha256(content).hexdigest()
        self.objects[digest] = content
        return _POINTER.format(digest, len(content))


@contextmanager
def hosting(folder: Path) -> Iterator[GitHost]:
    """Run a host; its authority's certificate is in `authorities`."""
    host = GitHost(folder)
    context = _certified(host)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(host))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    host.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        shutil.rmtree(folder, ignore_errors=True)


def _handler(host: GitHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(_body(self))

        def _serve(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            given = self.headers.get("Authorization", "")
            host.asked.append((path, given))
            wanted = "Basic " + base64.b64encode(f"oauth2:{host.token}".encode()).decode()
            if to := host.redirects.get(path):
                self._answer(302, b"", {"Location": to})
            elif host.token and given != wanted:
                self._answer(401, b"")
            elif path.endswith("/info/lfs/objects/batch"):
                self._answer(
                    200, json.dumps({"objects": [_about(host, each) for each in json.loads(body)["objects"]]}).encode()
                )
            elif path in host.files or path.rpartition("/")[2] in host.objects:
                self._answer(200, host.files.get(path) or host.objects[path.rpartition("/")[2]])
            elif re.match(r"/[\w-]+(\.git)?/(info/refs|git-upload-pack)", path):
                self._answer(*_backend(host, self, path, query, body))
            else:
                self._answer(404, b"")

        def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while size := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def _about(host: GitHost, asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "actions": {"download": {"href": host.url(f"large/{asked['oid']}"), "header": {"X-Large": "yes"}}}}


def _backend(
    host: GitHost, request: BaseHTTPRequestHandler, path: str, query: str, body: bytes
) -> tuple[int, bytes, dict[str, str]]:
    first, _, rest = path.lstrip("/").partition("/")
    run = subprocess.run(
        [BACKEND],
        input=body,
        capture_output=True,
        timeout=120,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(host.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{first.removesuffix('.git')}.git/{rest}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": request.command,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        },
    )
    head, _, content = run.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    return int(headers.pop("Status", "200 OK").split(" ")[0]), content, headers


def _certified(host: GitHost) -> ssl.SSLContext:
    """Return a server's context with a certificate for the names, and write that of its authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    host.authorities.write_bytes(made.public_bytes(Encoding.PEM))
    private = host.folder / "key.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(host.authorities, private)
    return context


def names_lead_to(addresses: dict[str, list[str]]) -> Any:
    """Return a `getaddrinfo` that knows these names alone; those of one in turn, the last for ever."""
    turns, known = {name: list(each) for name, each in addresses.items()}, socket.getaddrinfo
    literals = {address for each in addresses.values() for address in each}

    def getaddrinfo(name: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        if name in literals:
            return known(name, port, *args, **kwargs)
        if name not in turns:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        address = turns[name].pop(0) if len(turns[name]) > 1 else turns[name][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return getaddrinfo
