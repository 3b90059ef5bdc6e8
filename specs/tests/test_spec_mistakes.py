"""Spec files with one mistake each: line, field, what is allowed, and that nothing was made; and hostile ones."""

from itertools import pairwise
from pathlib import Path

import pytest

from accounts.models import User
from specs.tests.worlds import URL, is_empty, make_owner, post
from tests.api import client_of

SESSION = "kind: session\nimage: lab/pytorch:2\ncpu: 1\nmemory: 1g\n"
CLUSTER = SESSION.replace("session", "cluster") + "cluster:\n  size: 2\n"
DEPLOYMENT = "kind: deployment\nname: chat\nimage: lab/pytorch:2\ncommand: serve\ncpu: 1\nmemory: 1g\n"
VERSION = SESSION.replace("image: lab/pytorch:2", "environment: PyTorch\nversion: 2.0")
MOUNTS = SESSION + "mounts:\n- folder: a\n"
LAUGHS = [f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in pairwise("abcdefghi")]
MISTAKES = {  # text, line, field, what is said
    "no kind": (SESSION.replace("kind: session\n", ""), 1, "kind", "session, cluster, array, deployment"),
    "kind misspelt": (SESSION.replace("session", "sesion"), 1, "kind", "Did you mean “session”?"),
    "kind is a list": (SESSION.replace("session", "[session]"), 1, "kind", "no such kind"),
    "unknown field": (SESSION + "fgpus: 0.5\n", 5, "fgpus", "Did you mean “fgpu”?"),
    "unknown field far from all": (SESSION + "zzzzz: 1\n", 5, "zzzzz", "Allowed: image, environment"),
    "unknown field inside": (CLUSTER + "  mood: any\n", 7, "cluster.mood", "Did you mean “mode”?"),
    "no amounts": ("kind: session\nimage: lab/pytorch:2\ncpu: 1\n", 1, "memory", "Say how much"),
    "no image": ("kind: session\ncpu: 1\nmemory: 1g\n", 1, "image", "Name an image"),
    "image that is not there": (SESSION.replace("torch:2", "torch:9"), 2, "image", "no image of this name"),
    "number that is a word": (SESSION.replace("cpu: 1", "cpu: one"), 3, "cpu", "Allowed: 1 to"),
    "number too small": (SESSION.replace("cpu: 1", "cpu: 0"), 3, "cpu", "Allowed: 1 to"),
    "more than the policy": (SESSION.replace("cpu: 1", "cpu: 9999"), 3, "cpu", ""),
    "memory without sense": (SESSION.replace("1g", "many"), 4, "memory", "4g"),
    "fgpu between steps": (SESSION + "fgpu: 0.355\n", 5, "fgpu", "0.35 and 0.36"),
    "count too large": (SESSION + "count: 51\n", 5, "count", "Allowed: 1 to 50"),
    "name too short": (SESSION + "name: abc\n", 5, "name", "4 to 64"),
    "version that is a number": (VERSION, 3, "version", "string"),
    "variable without a name": (SESSION + "env:\n  1A: x\n", 5, "env", "letters, digits and _"),
    "variables as a list": (SESSION + "env:\n- A=1\n", 5, "env", '{"NAME": "value"}'),
    "folder that is not there": (SESSION + "mounts:\n- folder: nothing\n", 5, "mounts", "no folder"),
    "mount with an unknown field": (MOUNTS + "- folder: b\n  readonly: true\n", 8, "mounts.1.readonly", "“read_only”"),
    "mount with a wrong value": (MOUNTS + "  read_only: 7up\n", 7, "mounts.0.read_only", "Allowed: true, false"),
    "time without sense": (SESSION + "time_limit: 1:30\n", 5, "time_limit", "4h"),
    "start without sense": (SESSION + "not_before: tomorrow\n", 5, "not_before", "YYYY-MM-DD"),
    "group that is not there": (SESSION + "resource_group: a100\n", 5, "resource_group", "no resource group"),
    "preset and amounts": (SESSION + "preset: small\n", 5, "preset", "not both"),
    "cluster without a size": (CLUSTER.replace("size: 2", "mode: any"), 5, "cluster.size", "required"),
    "cluster of another mode": (CLUSTER + "  mode: near\n", 7, "cluster.mode", "any, single-host, spread"),
    "cluster that is none": (SESSION.replace("session", "cluster"), 1, "cluster", "required"),
    "deployment with a wrong name": (DEPLOYMENT.replace("chat", "Chat_1"), 2, "name", "lower-case letters"),
    "deployment without a command": (DEPLOYMENT.replace("command: serve\n", ""), 1, "command", "Write the command"),
    "health inside": (DEPLOYMENT + "health: {kind: http, retries: 0}\n", 7, "health.retries", "Allowed: 1 to"),
    "canary beyond a percentage": (DEPLOYMENT + "canary_steps:\n- 5\n- 500\n", 9, "canary_steps.1", "Allowed: 1 to 99"),
    "folder with a wrong name": ("kind: folder\nname: a/b\n", 2, "name", "letters, digits"),
    "folder on another root": ("kind: folder\nname: data\nroot: fast\n", 3, "root", "no storage root"),
    "the second document": (SESSION + "---\n" + SESSION + "name: ab\n", 10, "name", "4 to 64"),
    "two of one name": (SESSION + "name: train\n---\n" + SESSION + "name: train\n", 11, "name", "already"),
    "a field twice": (SESSION + "cpu: 2\n", 5, "", "“cpu” is there twice"),
    "a text": ("train\n", 1, "", "named fields"),
    "a list": ("- kind: session\n", 1, "", "named fields"),
    "nothing": ("# nothing\n", 1, "", "nothing in this file"),
    "a tab": ("kind: session\ncluster:\n\tsize: 2\n", 3, "", "indented by spaces"),
    "no YAML": ("kind: session\nname: 'a\n", 3, "", "This is no YAML"),
    "a tag": ("kind: session\nname: !!python/name:os.system x\n", 2, "", "Tags are not allowed"),
    "an alias": ("kind: session\nname: &a train\nimage: *a\n", 2, "", "aliases are not allowed"),
    "a control character": ("kind: session\nname: a\x07b\n", 2, "", "U+0007"),
}  # fmt: skip
HOSTILE = {
    "one that laughs": "a: &a [x]\n" + "".join(LAUGHS),
    "deep lists": "[" * 60_000,
    "deep mappings": "{a: " * 15_000,
    "many documents": "---\nkind: folder\n" * 3_000,
    "many unknown fields": "kind: session\n" + "".join(f"f{n}: 1\n" for n in range(6_000)),
    "a long name": "kind: session\n" + "n" * 60_000 + ": 1\n",
    "many mounts": SESSION + "mounts:\n" + "- folder: a\n" * 5_000,
    "a long number": SESSION + "priority: " + "9" * 60_000 + "\n",
    "an exponent": SESSION + "fgpu: 1e999\n",
    "open quotes": "'" * 60_001,
}  # fmt: skip

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_mistake_is_told_at_its_place(owner: User, name: str, dry_run: bool) -> None:
    text, line, field, said = MISTAKES[name]
    answer = post(owner, text, dry_run=dry_run)
    assert answer.status_code == 400, answer.json()
    errors = answer.json()["errors"]
    assert list(errors) == [f"line {line}: {field}" if field else f"line {line}"], errors
    assert said in " ".join(*errors.values())
    assert is_empty()


def test_all_mistakes_are_told_at_once(owner: User) -> None:
    text = SESSION.replace("cpu: 1", "cpu: x") + "mod: 1\n---\nkind: what\n---\n" + DEPLOYMENT.replace("1g", "none")
    assert list(post(owner, text).json()["errors"]) == ["line 3: cpu", "line 5: mod", "line 7: kind", "line 14: memory"]
    assert is_empty()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_cost_little(owner: User, name: str) -> None:
    answer = post(owner, HOSTILE[name])
    assert answer.status_code == 400
    assert len(answer.content) < 100_000
    assert is_empty()


def test_more_than_is_read_is_refused(owner: User) -> None:
    answer = post(owner, SESSION + "# " + "x" * 2**20)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["text"])
    answer = post(owner, SESSION + "# " + "é" * 2**15)
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["line 1"])
    assert is_empty()


def test_mistakes_are_told_in_the_readers_language(owner: User) -> None:
    client = client_of(owner)
    answer = client.post(URL, {"text": SESSION + "fgpus: 1\n"}, headers={"Accept-Language": "ko"})
    assert answer.json()["errors"] == {"line 5: fgpus": ["그런 필드가 없습니다. “fgpu”을(를) 뜻했나요?"]}
