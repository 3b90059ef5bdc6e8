"""What reads bytes of users takes about four times as long for four times as many, whatever they are.

A row for each parser, pattern and builder of names that a user's bytes can reach, with the worst input known for it.
"""

import asyncio
import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from django.http.cookie import parse_cookie
from rest_framework.exceptions import ParseError

from accounts.signing_in.lockout import folded_username
from engine.frames import FrameReader, unframed
from folders.files.downloads.archive import FolderArchive, require_archivable, safe_name
from folders.files.downloads.byte_range import parse_range
from folders.files.folder_files import FolderFiles, make_layout
from folders.files.paths import display
from folders.names import NAME as FOLDER_NAME
from gpuplatform.plain_cookies import PlainCookies
from gpuplatform.rest.parsing import ExactJSONParser
from hostworker.app_processes import scripts as app_process
from hostworker.conversion import packages
from hostworker.conversion.base import Change, ChangeKind
from hostworker.conversion.changes import plan
from hostworker.conversion.packages import Records, package_changes
from hostworker.conversion.suspicions import suspicion
from operations.logs.secrets import SECRET_PATH
from pages.help import documents
from pages.help.views import GROUPS
from pages.log_panel.ansi import MAX_CODES, coloured
from pages.session.losses import read_losses
from proxy.http import headers as proxy_headers
from proxy.http.response_parser import ResponseParser
from proxy.listener.dispatch import HOST, FirstRequestDispatcher
from resources.registries.client import _PARAMETER
from resources.registries.references import reference_problem
from sessions.conversion.services import _NAME as IMAGE_NAME
from sessions.following.all_sessions import MAX_POSITION_LENGTH, FeedPosition
from sshserver.data_folders import normal_path
from tests.growth import MOST, GrowthCase, growth_of
from translation.english import is_recognized
from translation.text_pattern import TextPattern

LIMIT: Final = 10**9  # beyond what any case sends
HELP: Final = frozenset(name for group in GROUPS for name in group.names)


def names_added(count: int) -> list[Change]:
    return [Change(path="/opt" + "/a" * count, kind=ChangeKind.ADDED)]


def changes_of(path: str) -> Callable[[int], list[Change]]:
    return lambda count: [Change(path="/opt" + path * count, kind=ChangeKind.ADDED)]


def parse_json(text: str) -> None:
    with suppress(ParseError):
        ExactJSONParser().parse(io.BytesIO(text.encode()))


def fed_frames(parts: list[bytes]) -> None:
    reader = FrameReader()
    for part in parts:
        reader.feed(part)


def one_frame(count: int) -> list[bytes]:
    return [b"\x01\0\0\0" + (10 * count).to_bytes(4, "big"), *[b"x" * 10] * count]


def fed_response(count: int) -> None:
    parser = ResponseParser(LIMIT)
    parser.expect(is_head_request=False, may_upgrade=False)
    for data in (b"HTTP/1.1 200 OK\r\n", *[b"a" * 9] * count):
        parser.feed_head(data)


def fed_request(count: int) -> None:
    pending = SimpleNamespace(admit=lambda transport: SimpleNamespace(release=lambda: None))
    plane: Any = SimpleNamespace(limits=SimpleNamespace(head_seconds=60, head_bytes=LIMIT), pending=pending)

    async def feed() -> None:
        dispatcher = FirstRequestDispatcher(plane, lambda head: asyncio.Protocol())
        dispatcher.connection_made(asyncio.Transport())
        for _ in range(count):
            dispatcher.data_received(b"a" * 9)
        dispatcher.stop_waiting()

    asyncio.run(feed())


def seen_cookies(header: bytes) -> None:
    async def django(scope: Any, receive: Any, send: Any) -> None:
        parse_cookie(scope["headers"][0][1].decode())

    asyncio.run(PlainCookies(django)({"type": "http", "headers": [(b"cookie", header)]}, None, None))


def counted_name(written: str) -> None:
    folded_username(SimpleNamespace(POST={}), {"username": written})  # type: ignore[arg-type]


def answered_headers(count: int) -> list[proxy_headers.Header]:
    return [(b"connection", b"abcdefgh")] * count


def range_of(header: str) -> None:
    with suppress(Exception):
        parse_range(header, 100)


def positions(text: str) -> None:
    with suppress(ValueError):
        FeedPosition.parsed(text)


LISTED: Final = TextPattern("%(days)s d %(hours)s h %(minutes)s min")

CASES: Final = {
    "log: a colour for each letter": GrowthCase(lambda n: "\x1b[1mx" * n, MAX_CODES // 5, coloured),
    "log: colours beyond the most that are shown": GrowthCase(lambda n: "\x1b[1mx" * n, 2 * MAX_CODES, coloured),
    "log: other colours each time": GrowthCase(
        lambda n: "".join(f"\x1b[{i};{i};{i}mx" for i in range(n)), 2000, coloured
    ),
    "log: many numbers in a code": GrowthCase(lambda n: f"\x1b[{'1;' * 99}m" * n + "x", 1000, coloured),
    "log: titles that never end": GrowthCase(lambda n: "\x1b]" * n, 10_000, coloured),
    "log: a code that never ends": GrowthCase(lambda n: "\x1b[" + "0" * n, 100_000, coloured),
    "log: codes that end wrongly": GrowthCase(lambda n: "\x1b[0 " * n, 5000, coloured),
    "log: a line written over": GrowthCase(lambda n: "\r" * n, 200_000, coloured),
    "log: markup": GrowthCase(lambda n: "<&" * n, 10_000, coloured),
    "log: secrets": GrowthCase(lambda n: "/apps/shared/" * n, 20_000, lambda text: SECRET_PATH.sub("", text)),
    "engine: a frame in parts": GrowthCase(one_frame, 5000, fed_frames),
    "engine: small frames": GrowthCase(lambda n: b"\x01\0\0\0\0\0\0\x01x" * n, 20_000, unframed),
    "app: output": GrowthCase(
        lambda n: "x\x1b[0\n" * n, 10_000, lambda text: app_process.read_status(f"runs\n--\n{text}", 80)
    ),
    "app: listeners": GrowthCase(lambda n: f"{' ' * n}1: {'A' * n}", 100_000, app_process.listening_ports),
    "losses: programs": GrowthCase(lambda n: "".join(f"a{i} b\n" for i in range(n)) + "\n--\n", 5000, read_losses),
    "text: values": GrowthCase(lambda n: "1 d 1 h " * n + "1 min", 2000, LISTED.values_in),
    "text: values that do not fit": GrowthCase(lambda n: "1 d 1 h " * n + "~ min", 2000, LISTED.values_in),
    "text: all known ones": GrowthCase(lambda n: "1 d 1 h " * n + "~", 2000, is_recognized),
    "text: sentences": GrowthCase(lambda n: "Placed on a. " * n, 200, is_recognized),
    "image: dashes": GrowthCase(lambda n: "a-" * n + "~", 20_000, reference_problem),
    "image: dots": GrowthCase(lambda n: "a." * n + "~", 20_000, reference_problem),
    "image: slashes": GrowthCase(lambda n: "a/" * n + "~", 20_000, reference_problem),
    "image: letters": GrowthCase(lambda n: "a" * n + "~", 20_000, reference_problem),
    "image: its new name": GrowthCase(lambda n: "a--" * n + "~", 5000, IMAGE_NAME.fullmatch),
    "registry: its challenge": GrowthCase(lambda n: "w" * n, 20_000, _PARAMETER.findall),
    "registry: values that never end": GrowthCase(lambda n: 'w="' * n, 5000, _PARAMETER.findall),
    "conversion: a deep path": GrowthCase(names_added, 50_000, lambda found: plan(found, ("/home/work/a",), bool)),
    "conversion: packages of conda": GrowthCase(
        changes_of("/conda-meta/a-a"), 5000, lambda found: package_changes(found, Records())
    ),
    "conversion: packages of pip": GrowthCase(
        changes_of("/site-packages/a.a"), 5000, lambda found: package_changes(found, Records())
    ),
    "conversion: records of packages": GrowthCase(lambda n: f"{'a' * n}\n" * 3, 50_000, packages._stanzas),
    "conversion: words that look like secrets": GrowthCase(
        lambda n: b"-----BEGIN " + b"A " * n + b"http://a:" * n, 1000, lambda head: suspicion("/x", 100, head)
    ),
    "conversion: names that look like secrets": GrowthCase(
        lambda n: "/.env." * n, 2000, lambda path: suspicion(path, 100, b"")
    ),
    "files: a name to be shown": GrowthCase(lambda n: "\n" * n, 5000, display),
    "files: a name in an archive": GrowthCase(lambda n: "?" * n, 5000, safe_name),
    "files: a name of a folder": GrowthCase(lambda n: "a" + "." * n, 50_000, FOLDER_NAME.fullmatch),
    "files: a path of SFTP": GrowthCase(lambda n: "a/" * n + "../" * n, 20_000, normal_path),
    "files: a range": GrowthCase(lambda n: "bytes=" + " " * n, 50_000, range_of),
    "request: a position in a stream": GrowthCase(
        lambda n: "1:" + "1." * n + "1", MAX_POSITION_LENGTH // 10, positions
    ),
    "request: JSON nested": GrowthCase(lambda n: "[" * n, 50_000, parse_json),
    "request: JSON numbers": GrowthCase(lambda n: f"[{'1.1,' * n}1]", 5000, parse_json),
    "request: JSON digits": GrowthCase(lambda n: f"[1.{'1' * n}]", 50_000, parse_json),
    "request: JSON escapes": GrowthCase(lambda n: '["' + "\\u0041" * n + '"]', 50_000, parse_json),
    "request: cookies with escapes": GrowthCase(lambda n: b'a="' + b"\\\\" * n + b'"', 20_000, seen_cookies),
    "request: many cookies": GrowthCase(lambda n: b"a=1; " * n, 5000, seen_cookies),
    "request: a name at the sign-in": GrowthCase(lambda n: "a" + "\u0300\u0316" * n, 5000, counted_name),
    "request: a name of wide letters": GrowthCase(lambda n: "\ufdfa" * n, 20_000, counted_name),
    "request: its head in parts": GrowthCase(lambda n: n, 5000, fed_request),
    "request: Host": GrowthCase(lambda n: b"\r\nhost  " * n, 20_000, HOST.search),
    "request: headers repeated": GrowthCase(lambda n: [(b"cookie", b"abcdefgh")] * n, 2000, proxy_headers.classify),
    "request: headers named": GrowthCase(answered_headers, 2000, proxy_headers.classify),
    "request: cookies for an app": GrowthCase(lambda n: b"a=b;" * n, 3000, proxy_headers.strip_platform_cookies),
    "response of an app: its head in parts": GrowthCase(lambda n: n, 5000, fed_response),
    "response of an app: headers named": GrowthCase(
        answered_headers, 2000, lambda found: proxy_headers.filter_response_headers(found, is_public=False)
    ),
    "response of an app: cookies": GrowthCase(
        lambda n: [(b"set-cookie", b"a=b;" * n)],
        10_000,
        lambda found: proxy_headers.filter_response_headers(found, is_public=False),
    ),
    "help: words": GrowthCase(
        lambda n: " ".join(f"e{'e' * (i % 50)}" for i in range(n)), 1000, lambda text: documents.search(text, HELP)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_work_grows_as_its_input_does(name: str) -> None:
    assert growth_of(CASES[name]) <= MOST


@pytest.fixture
def files(tmp_path: Path) -> FolderFiles:
    opened = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    make_layout(opened)
    return FolderFiles(opened)


def archived(files: FolderFiles, directory: str) -> None:
    require_archivable(files, [directory])
    for _ in FolderArchive(files, [directory]).chunks():
        pass


def test_names_that_clash_in_an_archive_grow_linearly(files: FolderFiles, tmp_path: Path) -> None:
    def made(count: int) -> str:
        directory = tmp_path / f"files/{count}"
        if not directory.exists():
            directory.mkdir()
            for number in range(count):
                digits = (1 + number // 30**place % 30 for place in range(3))  # all of them "_" in an archive
                (directory / "".join(map(chr, digits))).touch()
        return directory.name

    assert growth_of(GrowthCase(made, 800, lambda name: archived(files, name))) <= MOST
