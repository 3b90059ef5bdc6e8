"""Invalid launch requests: a message at the field, nothing written, and never a 500."""

from typing import Any

import pytest

from accounts.models import User
from resources.amounts.units import GIB
from sessions.models import Session
from tests.api import client_of
from tests.factories import make_folder, make_host, make_image, make_preset, make_root, make_session, make_user

URL = "/api/v1/sessions/"
HUGE = 10**30
pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return make_user()


@pytest.fixture
def order(user: User) -> dict[str, Any]:
    """An order that is granted: each case below spoils one thing."""
    make_folder(user, root=make_root(make_host(gpus=1, cpu=16, memory=64 * GIB)), name="mine")
    make_preset(name="small")
    return {"image": make_image(reference="example/python:3").reference, "cpu": 1, "memory": "1g"}


def test_the_unspoilt_order_is_granted(user: User, order: dict[str, Any]) -> None:
    assert client_of(user).post(URL, order).status_code == 201


NO_TEXTS: list[Any] = [7.5, True, None, [], {}]
NO_FOLDERS: list[Any] = [*NO_TEXTS, "", "x" * 65, "a\0b", "nothing", "../x", "a/b", "日本"]
NO_FLAGS: list[Any] = ["x", 7, [], {}]
NO_PATHS: list[Any] = [None, [], "a\0b", "/", "..", "/etc/x", "x" * 300]
WRONG: dict[str, list[Any]] = {
    "image": [*NO_TEXTS, "", "x" * 5000, "a\0b", "no/such:image", "日本"],
    "resource_group": [*NO_TEXTS, "", "x" * 5000, "a\0b", "nowhere"],
    "preset": [*NO_TEXTS, "", "x" * 5000, "a\0b", "small"],  # beside amounts
    "name": [*NO_TEXTS, "x" * 65, "a\0bc", "abc", "-abcd", "ab cd", "ümlaut", "a/../b"],
    "cpu": [0, -1, 1.5, HUGE, 17, "x", "", None, True, [1], {"a": 1}, "1\0"],
    "memory": [
        *(0, -1, 1.5, HUGE, 10**4000, 65 * GIB, None, True, [1], {}),
        *("65g", "4x", "", "1g\0", "9" * 99, "-1g", "1e3", "NaN"),
    ],
    "shared_memory": [0, -1, 1.5, HUGE, "2g", "x", None, True, [1], {}],
    "fgpu": [
        *(-1, 0.005, HUGE, 10**4000, 2.5, 0.1 + 0.2, 1e300, None, True, [0.5], {"a": 1}),
        *("-0.1", "0.355", "1e400", "NaN", "Infinity", "", "x", "0.5\0", "٣", "9" * 99),
    ],
    "count": [0, -1, 51, HUGE, 1.5, "x", None, True, []],
    "priority": [11, -1, 101, HUGE, 1.5, "x", None, True, []],
    "env": [
        *([], "A=1", None, 5, {"1A": "x"}, {"A B": "x"}, {"": "x"}, {"A\0": "x"}, {"Ä": "x"}, {"GPUPLATFORM_X": "1"}),
        *({"A": []}, {"A": {}}, {"A": None}, {"A": 1.5}, {"A": True}, {"A": "a\0b"}, {"A": "x" * 70_000}),
        {f"A{number}": "x" for number in range(201)},
    ],
    "command": [[], {}, None, True, "", "  ", "a\0b", "x" * 17_000, "ü" * 9_000],
    "time_limit": [0, -1, 59, HUGE, -HUGE, 1.5, "x", "", "4", "0m", "9" * 9 + "d", "4h\0", True, [], {}],
    "not_before": [1, True, [], {}, "", "x", "2030-13-01T00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59"],
    "depends_on": [
        *(None, True, "x", {}, 1, ["x"], [1], [None], ["a" * 16], ["a" * 17], [["a" * 16]], ["a" * 15 + "\0"]),
        *(
            ["after:"],
            ["after_all:" + "a" * 16],
            [{"session": "x"}],
            [{"kind": "after"}],
            [{"session": "a" * 16, "kind": []}],
        ),
        *([f"after:{'a' * 16}", "a" * 16], "after_any:" + "a:" * 99, [{"session": "a" * 16, "more": 1}], ["?"]),
    ],
    "mounts": [
        *(None, True, "x", {}, 1, ["x"], [1], [None], [[]], [{}], [{"path": "x"}], [{"folder": "x", "more": 1}]),
        *([{"folder": each}] for each in NO_FOLDERS),
        *([{"folder": "mine", "path": each}] for each in NO_PATHS),
        *([{"folder": "mine", "read_only": each}] for each in NO_FLAGS),
        [{"folder": "mine"}, {"folder": "mine", "path": "/mnt/other"}],
        [{"folder": "mine"}] * 21,
    ],
    "version": ["3"],  # beside an image
    "status": ["RUNNING"],
    "owner": ["root"],
    "": [1],
    "日本": [1],
    "x" * 5000: [1],
}
CASES = [(field, value) for field, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("field", "value"), CASES, ids=lambda case: ascii(case)[:24])
def test_an_invalid_value_is_reported_at_its_field(
    user: User, order: dict[str, Any], field: str, value: object
) -> None:
    answer = client_of(user).post(URL, order | {field: value})
    body = answer.json()
    assert answer.status_code == 400, body
    expected = "image" if field == "version" else field
    assert {name.partition(".")[0] for name in body["errors"]} == {expected}  # a mount's fields have names inside of it
    assert all(isinstance(message, str) and message for texts in body["errors"].values() for message in texts)
    assert not Session.objects.exists()


@pytest.mark.parametrize("field", ["image", "cpu", "memory"])
def test_a_missing_value_is_reported_at_its_field(user: User, order: dict[str, Any], field: str) -> None:
    del order[field]
    assert list(client_of(user).post(URL, order).json()["errors"]) == [field]


@pytest.mark.parametrize(
    ("naming", "field"),
    [
        ({"environment": "Python"}, "version"),
        ({"version": "3"}, "image"),
        ({"environment": "Python", "version": "nought"}, "version"),
        ({"environment": "None such", "version": "3"}, "version"),
    ],
)
def test_an_incomplete_environment_is_reported(
    user: User, order: dict[str, Any], naming: dict[str, str], field: str
) -> None:
    del order["image"]
    assert list(client_of(user).post(URL, order | naming).json()["errors"]) == [field]


def test_several_errors_are_reported_together(user: User, order: dict[str, Any]) -> None:
    spoilt = order | {"cpu": 0, "fgpu": "0.355", "env": 5, "nmae": "x"}
    assert set(client_of(user).post(URL, spoilt).json()["errors"]) == {"cpu", "fgpu", "env", "nmae"}


def test_a_rejected_preset_amount_is_reported_at_preset(user: User, order: dict[str, Any]) -> None:
    make_preset(name="vast", cpu=1000, memory=1000 * GIB)
    [(field, messages)] = (
        client_of(user).post(URL, {"image": order["image"], "preset": "vast"}).json()["errors"].items()
    )
    assert (field, len(messages)) == ("preset", 2)


def test_a_disabled_image_is_not_to_be_had(user: User, order: dict[str, Any]) -> None:
    image = make_image(is_enabled=False)
    assert list(client_of(user).post(URL, order | {"image": image.reference}).json()["errors"]) == ["image"]
    del order["image"]
    naming = {"environment": image.environment, "version": image.version}
    assert list(client_of(user).post(URL, order | naming).json()["errors"]) == ["version"]


def test_a_live_sessions_name_is_refused(user: User, order: dict[str, Any]) -> None:
    group = make_session(owner=user, name="taken", resource_group=make_host().group).resource_group.name
    assert list(client_of(user).post(URL, order | {"name": "taken", "resource_group": group}).json()["errors"]) == [
        "name"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        '{"fgpu": NaN}',
        '{"fgpu": Infinity}',
        '{"fgpu": 1e99999999999999999999}',
        '{"cpu": ' + "9" * 5000 + "}",
        '{"image": "\\ud800"}',
        '{"\\udfff": 1}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "[]",
        "null",
        "7",
        '"text"',
        '[{"image": "x"}]',
        "\ufeff{}",
    ],
    ids=lambda text: ascii(text)[:24],
)
def test_a_malformed_body_is_400_with_a_message(user: User, order: dict[str, Any], text: str) -> None:
    answer = client_of(user).post(URL, text, content_type="application/json")
    assert answer.status_code == 400, answer.json()
    assert answer.json()
    assert not Session.objects.exists()


@pytest.mark.parametrize("body", [b"\xff\xfe\xfa", b'{"name": "\xff"}', b"\0"])
def test_a_body_that_is_no_text_is_400(user: User, body: bytes) -> None:
    answer = client_of(user).post(URL, body, content_type="application/json")
    assert (answer.status_code, answer.json()["errors"]) == (400, {})


def test_a_body_too_large_is_413(user: User) -> None:
    answer = client_of(user).post(URL, {"name": "x" * 3_000_000})
    assert (answer.status_code, answer.json()["detail"]) == (413, "The body of the request is too large.")


def test_a_form_is_not_taken_for_json(user: User) -> None:
    answer = client_of(user).post(URL, b"image=x", content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 415
