"""Documents of a spec file that wait for others of it, by name."""

from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from resources.models import ResourceGroup
from sessions.models import Dependency, Session
from specs.documents import spec_document, yaml_documents
from specs.problems import MAX_PROBLEMS
from specs.references import references
from specs.tests.worlds import is_empty, make_owner, post
from tests.factories import make_session

AMOUNTS = "image: lab/pytorch:2\ncpu: 1\nmemory: 1g\ncommand: run\n"
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(tmp_path: Path) -> User:
    return make_owner(tmp_path)


def document(name: str, after: str = "", more: str = "") -> str:
    return f"---\nkind: session\nname: {name}\n{AMOUNTS}{more}" + (f"depends_on: {after}\n" if after else "")


def links() -> set[tuple[str, str, str]]:
    return set(Dependency.objects.values_list("from_session__name", "kind", "to_session__name"))


def problems(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 400, answer.json()
    found: dict[str, list[str]] = answer.json()["errors"]
    return found


def test_documents_wait_for_others_in_any_order(owner: User) -> None:
    before = make_session(owner=owner, resource_group=ResourceGroup.objects.get(), name="before")
    text = (
        document("report", "[{document: evaluate, kind: after_any}, train]")
        + document("evaluate", f"[after_ok:train, 'after:{before.pk}']")
        + document("train", more="count: 2\n")
        + document("alert", "afternotok:train")
    )
    answer = post(owner, text)
    assert answer.status_code == 201, answer.json()
    assert [row["name"] for row in answer.json()["documents"]] == ["report", "evaluate", "train", "alert"]
    trains = ("train-1", "train-2")
    assert links() == {
        *(("report", "after_any", "evaluate"), ("evaluate", "after", "before")),
        *(("report", "after_ok", name) for name in trains),
        *(("evaluate", "after_ok", name) for name in trains),
        *(("alert", "after_not_ok", name) for name in trains),
    }


def test_a_dry_run_says_what_waits(owner: User) -> None:
    answer = post(owner, document("evaluate", "[train]") + document("train"), dry_run=True)
    assert answer.status_code == 200, answer.json()
    rows = {row["name"]: row["estimate"] for row in answer.json()["documents"]}
    assert rows["train"]["starts"] == "now"
    assert (rows["evaluate"]["starts"], "depends on" in rows["evaluate"]["reason"]) == (None, True)
    assert is_empty()
    refused = post(owner, document("evaluate", "[train]") + document("train") + document("train"), dry_run=True)
    assert any("train" in message for found in problems(refused).values() for message in found)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (document("train", "[\n  nothing]"), "line 9: depends_on.0", "Allowed: train"),
        (document("evaluate", "[{document: trian}]") + document("train"), "line 8: depends_on.0", "“train”?"),
        (document("train", "[train]"), "line 8: depends_on", "train, train"),
        (document("one1", "[two2]") + document("two2", "[one1]"), "line 8: depends_on", "each other: "),
        (document("one1") + document("two2", "[one1, after:one1]"), "line 15: depends_on.1", "named twice"),
        (document("train", "[after_all:train]"), "line 8: depends_on", "after_not_ok"),
        (document("train", "[{document: train, kind: 3}]"), "line 8: depends_on", "after_not_ok"),
        (document("train", "[{document: train, more: 3}]"), "line 8: depends_on", "after_not_ok"),
        (document("train", "[7]"), "line 8: depends_on", "after_not_ok"),
    ],
)
def test_what_is_not_there_is_told_at_its_line(owner: User, text: str, place: str, said: str) -> None:
    found = problems(post(owner, text))
    assert list(found) == [place]
    assert said in found[place][0]
    assert is_empty()


def test_many_wrong_names_are_not_all_looked_for(owner: User) -> None:
    text = document("train", "[" + ", ".join(f"nothing{number}" for number in range(4000)) + "]")
    found = references([spec_document(each) for each in yaml_documents(text)])
    assert len(found.problems) == MAX_PROBLEMS
    assert len(problems(post(owner, text))) == MAX_PROBLEMS


@pytest.mark.parametrize("kind", ["afterok", "afternotok", "afterany", "after"])
def test_slurm_kinds_are_translated(owner: User, kind: str) -> None:
    others = [make_session(owner=owner, resource_group=ResourceGroup.objects.get()) for _ in range(3)]
    ids = [session.pk for session in others]
    value = f"{kind}:{ids[0]}:{ids[1]},afterany:{ids[2]},singleton"
    script = f"#!/bin/bash\n#SBATCH --dependency={value}\n#GP --image pytorch\n:\n"
    answer = post(owner, script)
    assert answer.status_code == 201, answer.json()
    made = Session.objects.exclude(pk__in=ids).get()
    kinds = dict(made.dependencies.values_list("to_session", "kind"))
    wanted = {"afterok": "after_ok", "afternotok": "after_not_ok", "afterany": "after_any", "after": "after"}[kind]
    assert kinds == {ids[0]: wanted, ids[1]: wanted, ids[2]: "after_any"}
    notes = {row["outcome"]: row["note"] for row in answer.json()["translated"] if row["line"] == 2}
    assert "same name" in notes["left_out"]


@pytest.mark.parametrize("value", ["aftercorr:a2345672a2345672", "afterok:a2345672a2345672?afterany:a2345672a2345672"])
def test_what_slurm_alone_has_is_refused(owner: User, value: str) -> None:
    found = problems(post(owner, f"#!/bin/bash\n#SBATCH -d {value}\n#GP --image pytorch\n:\n"))
    assert "afternotok" in found[f"line 2: #SBATCH -d {value}"][0]


def test_what_the_caller_waits_for_is_added(owner: User) -> None:
    first, second = (make_session(owner=owner, resource_group=ResourceGroup.objects.get()) for _ in range(2))
    script = f"#!/bin/bash\n#GP --image pytorch --name evaluate --depends-on after:{first.pk}\n:\n"
    answer = post(owner, script, depends_on=[f"afterok:{second.pk}"])
    assert answer.status_code == 201, answer.json()
    assert links() == {("evaluate", "after", first.name), ("evaluate", "after_ok", second.name)}
    assert list(problems(post(owner, script, depends_on=["a" * 16]))) == ["depends_on"]
