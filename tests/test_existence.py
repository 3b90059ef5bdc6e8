"""No response tells a user what others have: what is theirs looks as what is nobody's, to the last byte.

The addresses come from the URL patterns. A user who has things of every kind asks for those of somebody else, and for
these below things of their own. The administration is left out, which lets no user in.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from django.db import transaction
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.api_schema import api_schema
from tests.test_access_matrix import World, patterns, verbs

# What every user may know of: pages, files, steps and hosts by their names.
OF_ALL: Final = frozenset({"overview:host", "sessions:launch-step", "help:page", "client"})
MISSING_NUMBER: Final = "999983"
# Other each time: a nonce and a token in pages, and in headers what counts and numbers requests.
RANDOM: Final = re.compile(r"""nonce="[^"]*"|(?:middlewaretoken" value=|"X-CSRFToken": )"[^"]*"|'nonce-[^']+'""")
COUNTING: Final = ("RateLimit", "X-Request-Id", "Content-Length", "Expires")  # of each response
HEADERS: Final = {"Tus-Resumable": "1.0.0", "Upload-Length": "1"}  # without which uploads are refused before

pytestmark = pytest.mark.django_db


def missing(value: object) -> str:
    """Return an argument of the same form, of nothing that there is."""
    text = str(value)
    return MISSING_NUMBER if text.isdecimal() else text[:-1] + ("b" if text[-1] == "a" else "a")


Arguments = dict[str, Any]


def pairs(keys: tuple[str, ...], theirs: Arguments, mine: Arguments) -> Iterator[tuple[Arguments, Arguments]]:
    """Yield arguments that name a thing of others, and beside them nobody's: all of them, and the last one alone."""
    yield theirs, {key: missing(theirs[key]) for key in keys}
    if len(keys) > 1 and theirs[last := keys[-1]] != mine[last]:
        yield {**mine, last: theirs[last]}, {**mine, last: missing(theirs[last])}


@cache
def operations() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return what the API's description says of each of its addresses, by a pattern of it."""
    paths = api_schema()["paths"].items()
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), methods) for path, methods in paths]


def valid_request(verb: str, path: str) -> tuple[str, object]:
    """Return path with query, and body, that the address does not refuse for their form; of a page without either."""
    described = [methods.get(verb.lower(), {}) for pattern, methods in operations() if pattern.fullmatch(path)]
    operation: dict[str, Any] = described[0] if described else {}
    parameters = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    needed = [each["name"] for each in parameters if each.get("required")]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    example = body.get("examples", {}).get("Example", {}).get("value")
    return path + ("?" + "&".join(f"{name}=x" for name in needed) if needed else ""), example


def response(client: Any, verb: str, path: str, arguments: Mapping[str, object]) -> str:
    """Return status, headers and body of a request that is undone, without what it named."""
    cookies = client.cookies.copy()
    asked, body = valid_request(verb, path)
    content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
    with transaction.atomic():
        found = getattr(client, verb.lower())(asked, headers=HEADERS, **content)
        transaction.set_rollback(True)
    client.cookies = cookies
    lines = [
        str(found.status_code),
        *(f"{name}: {value}" for name, value in found.headers.items() if not name.startswith(COUNTING)),
    ]
    text = "\n".join([*lines, "(a stream)" if found.streaming else found.content.decode()])
    text = text.replace(path, "PATH").replace(quote(path, safe=""), "PATH")
    for value in map(str, arguments.values()):
        text = text if value.isdecimal() else text.replace(value, "ID")
    return RANDOM.sub("", text)


def test_what_is_others_looks_as_what_is_nobodys(tmp_path: Path, settings: Settings) -> None:
    settings.COMPUTE_API_REQUESTS_PER_MINUTE = 100_000
    others, own = (World(tmp_path / label, label) for label in ("others", "own"))
    user = own.users["owner"]
    page, api = Client(raise_request_exception=False), APIClient(raise_request_exception=False)
    assert user
    page.force_login(user)
    api.force_authenticate(user)
    told = []
    for name, keys, pattern in patterns(get_resolver()):
        if not keys or name.startswith("admin:") or name in OF_ALL:
            continue
        theirs, mine = ({key: world.argument(name, key) for key in keys} for world in (others, own))
        for verb, pair in product(verbs(pattern), pairs(keys, theirs, mine)):
            paths = [reverse(name, kwargs=arguments) for arguments in pair]
            client = api if paths[0].startswith("/api/") else page
            seen = [response(client, verb, path, arguments) for path, arguments in zip(paths, pair, strict=True)]
            if seen[0] != seen[1] or seen[0].startswith("500"):  # an error of ours would be alike for both
                told += [f"{verb} {paths[0]} ({name})", *unified_diff(seen[0].splitlines(), seen[1].splitlines(), n=0)]
    assert told == [], "\n".join(told)
    asked = page.get("/sessions/").status_code, api.get("/api/v1/me/").status_code
    assert asked == (200, 200), "strangers are told nothing anyway"
