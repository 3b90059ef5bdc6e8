"""No migration since the previous version breaks the processes of that version, which run beside it in an upgrade."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import models
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from gpuplatform.bootstrap.checks.expand_contract import problems
from tests.platform import ROOT
from tests.versions import PREVIOUS, have_previous, is_history, landed_before, lay_out_previous

BEFORE: dict[str, Any] = {
    "id": models.BigAutoField(primary_key=True),
    "note": models.TextField(null=True),
    "size": models.IntegerField(),
}


# Prints {name of a task: its parameters, "name" or "name=" with a default}.
TASKS = """
import inspect, json, django
django.setup()
import hostworker.tasks
from gpuplatform.celery import app
app.loader.import_default_modules()
tasks = {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}
print(json.dumps({
    name: [p.name + "=" * (p.default is not p.empty) for p in inspect.signature(task.run).parameters.values()]
    for name, task in tasks.items()
}))
"""


def tasks_of(tree: Path) -> dict[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", TASKS], cwd=tree, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    tasks: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return tasks


def migrations_of(commit: str) -> set[tuple[str, str]]:
    """Return app folder and name of each migration of a commit."""
    command = ["git", "ls-tree", "-r", "--name-only", commit]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {(name.split("/")[0], name.rsplit("/", 1)[1][:-3]) for name in names if "/migrations/0" in name}


def test_the_previous_version_has_all_that_landed() -> None:
    have_previous()
    landed = landed_before() or PREVIOUS
    assert migrations_of(landed) <= migrations_of(PREVIOUS), f"echo {landed} >tests/previous_version.txt"
    assert is_history(PREVIOUS)


def test_new_migrations_leave_the_previous_version_working() -> None:
    loader = MigrationLoader(None)
    have_previous()
    known = migrations_of(PREVIOUS)
    assert known
    added: dict[tuple[str, str], Migration] = {}
    for (app, name), migration in loader.disk_migrations.items():
        folder = type(migration).__module__.split(".")[0]
        if (ROOT / folder / "migrations").is_dir() and (folder, name) not in known:
            added[app, name] = migration
    new = {
        (app, operation.name_lower)
        for (app, _), migration in added.items()
        for operation in migration.operations
        if isinstance(operation, operations.CreateModel)
    }
    for key, migration in added.items():
        assert problems(migration, loader.project_state(key, at_end=False), new) == []


@pytest.mark.long
def test_workers_take_the_messages_of_the_previous_version(tmp_path: Path) -> None:
    lay_out_previous(tmp_path / "previous")
    before, now = tasks_of(tmp_path / "previous"), tasks_of(ROOT)
    assert {"hostworker.tasks.start_session", "scheduler.tasks.run_pass"} <= set(before) <= set(now)
    for name, parameters in before.items():
        assert now[name][: len(parameters)] == parameters, name
        assert all(each.endswith("=") for each in now[name][len(parameters) :]), name


def test_a_table_that_old_code_does_not_know_may_change() -> None:
    added = operations.AddField("thing", "colour", models.TextField(default=""))
    migration = type("Next", (Migration,), {"operations": [added]})("0002_next", "shop")
    before = ProjectState()
    before.add_model(ModelState("shop", "Thing", list(BEFORE.items())))
    assert problems(migration, before, {("shop", "thing")}) == []
    assert len(problems(migration, before, {("shop", "other"), ("else", "thing")})) == 1


@pytest.mark.parametrize(
    ("operation", "is_refused"),
    [
        (operations.AddField("thing", "colour", models.TextField(default="")), True),
        (operations.AddField("thing", "colour", models.TextField(db_default="")), False),
        (operations.AddField("thing", "colour", models.TextField(null=True)), False),
        (operations.RemoveField("thing", "note"), True),
        (operations.RenameField("thing", "note", "words"), True),
        (operations.DeleteModel("thing"), True),
        (operations.AlterField("thing", "note", models.TextField()), True),
        (operations.AlterField("thing", "size", models.TextField()), True),
        (operations.AlterField("thing", "size", models.BigIntegerField()), False),
        (operations.CreateModel("other", [("id", models.BigAutoField(primary_key=True))]), False),
        (operations.SeparateDatabaseAndState([operations.DeleteModel("thing")]), True),
        (operations.SeparateDatabaseAndState([], [operations.DeleteModel("thing")]), False),
    ],
)
def test_operations_that_old_code_cannot_bear_are_refused(operation: Operation, *, is_refused: bool) -> None:
    migration = type("Next", (Migration,), {"operations": [operation]})("0002_next", "shop")
    before = ProjectState()
    before.add_model(ModelState("shop", "Thing", list(BEFORE.items())))
    assert bool(problems(migration, before)) is is_refused
