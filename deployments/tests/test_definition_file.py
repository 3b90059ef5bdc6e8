"""The definition file of the other platform: what becomes of it, and what is said of a wrong one."""

from typing import Any

import pytest

from deployments.definitions.drafts import DefinitionError, Draft
from deployments.definitions.model_file import drafts_of

FILE = """\
models:
  - name: digits
    model_path: /models
    service:
      start_command: [python3, -m, http.server, --directory, /models/web site, "8000"]
      port: 8000
      pre_start_actions:
        - {action: mkdir, args: {path: /tmp/a b}}
        - {action: run_command, args: {command: [cp, /models/x, /tmp]}}
        - {action: write_file, args: {filename: /tmp/x, body: [a]}}
      health_check:
        path: /health
        interval: 20
        max_retries: 5
        max_wait_time: 2.5
        initial_delay: 60
      environment:
        WEIGHTS: /models/x
        SEED: 7
    metadata:
      title: Digits
      author: Ada
      min_resource: {cpu: 2, mem: 1g, cuda.shares: 0.5, tpu: 1}
"""


def the_draft(text: str) -> Draft:
    [draft] = drafts_of(text, "model-definition.yaml")
    return draft


def mistakes(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as refusal:
        drafts_of(text, "model-definition.yaml")
    return [str(each) for each in refusal.value.mistakes]


def model(**service: Any) -> str:
    """Return a file whose one service has these fields, as YAML writes them."""
    fields = {"start_command": "serve", "port": 8000} | service
    lines = [f"      {name}: {value}" for name, value in fields.items() if value is not None]
    return "\n".join(["models:", "  - name: m", "    model_path: /models", "    service:", *lines])


def test_a_whole_file_fills_a_revision() -> None:
    draft = the_draft(FILE)
    assert (draft.name, draft.source, draft.problem) == ("digits", "model-definition.yaml", "")
    assert draft.revision == {
        "command": "mkdir -p '/tmp/a b' && cp /srv/model/x /tmp && "
        "exec python3 -m http.server --directory '/srv/model/web site' 8000",
        "port": 8000,
        "environment": {"WEIGHTS": "/srv/model/x", "SEED": "7"},
        "model_path": "/srv/model",
        "health": {
            "kind": "http",
            "path": "/health",
            "interval_seconds": 20,
            "timeout_seconds": 3,
            "retries": 5,
            "start_seconds": 160,
        },
        "note": "Digits",
        "cpu": 2,
        "memory": 2**30,
        "fgpu": 500,
    }


def test_what_is_not_taken_over_is_named() -> None:
    notes = "\n".join(the_draft(FILE).notes)
    for part in ("/models", "pre_start_actions[2]: write_file", "author", "min_resource.tpu"):
        assert part in notes
    longer = the_draft(model(health_check="{path: /, interval: 2, max_wait_time: 9, expected_status_code: 204}"))
    assert longer.revision["health"]["timeout_seconds"] == 2
    assert any("it gets 2 seconds" in note for note in longer.notes)
    assert any("expected_status_code" in note for note in longer.notes)


@pytest.mark.parametrize(
    ("path", "mounted", "model_path"),
    [
        ("/models", "/srv/model", None),
        ("/models/llama", "/srv/model", "/srv/model/llama"),
        ("llama/8b", "/srv/model", "/srv/model/llama/8b"),
        ("/mnt/llama", "/mnt/llama", None),
        ("/home/work/llama/", "/home/work/llama", None),
        ("/etc", "/srv/model", None),
    ],
)
def test_the_folder_is_mounted_where_it_may(path: str, mounted: str, model_path: str | None) -> None:
    draft = the_draft(model().replace("/models", path))
    assert draft.revision["model_path"] == mounted
    assert draft.revision["environment"].get("MODEL_PATH") == model_path


def test_only_whole_paths_are_moved() -> None:
    command = "serve /models /models/a --x=/models/b /models-old /mnt/models my.models"
    draft = the_draft(model(start_command=command))
    assert (
        "serve /srv/model /srv/model/a --x=/srv/model/b /models-old /mnt/models my.models" in draft.revision["command"]
    )


def test_a_text_is_run_by_the_named_shell() -> None:
    assert the_draft(model(start_command="a | b")).revision["command"] == "exec /bin/bash -c 'a | b'"
    assert the_draft(model(shell="/bin/sh")).revision["command"] == "exec /bin/sh -c serve"


@pytest.mark.parametrize("check", [None, "null", "{}", "{enable: false, path: /x}"])
def test_without_a_health_check_the_port_is_enough(check: str | None) -> None:
    assert the_draft(model(health_check=check)).revision["health"] == {"kind": "tcp"}


def test_a_model_without_a_service_cannot_be_deployed() -> None:
    draft = the_draft("models: [{name: m, model_path: /models}]")
    assert draft.problem
    assert not draft.revision


def test_all_mistakes_are_told_at_once_by_line() -> None:
    wrong = (
        FILE.replace("port: 8000", "port: 80")
        .replace("path: /health", "path: health")
        .replace("interval: 20", "intervall: 20")
        .replace("cpu: 2", "cpu: two")
        .replace("SEED: 7", "LD_PRELOAD: 7")
    )
    found = mistakes(wrong)
    assert [line.partition(": ")[0] for line in found] == [
        "line 6, models[0].service.port",
        "line 12, models[0].service.health_check.path",
        "line 13, models[0].service.health_check.intervall",
        "line 19, models[0].service.environment.LD_PRELOAD",
        "line 23, models[0].metadata.min_resource.cpu",
    ]
    assert "1024 to 65535" in found[0]
    assert "interval, max_retries" in found[2]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "line 1: The file is empty."),
        ("a: [1", ": This is no YAML"),
        ("models:\n\t- a", "line 2: A line begins with a tab"),
        ("models: 1\n---\nmodels: 2", "line 3: The file has a second document."),
        ("- a", "line 1: Write fields here: models."),
        ("models:", "line 1, models: This is needed."),
        ("models: []", "line 1, models: Write a list"),
        ("models: [1]", "line 1, models[0]: Write fields here: name, "),
        ("models:\n- name: a", "line 2, models[0].model_path: This is needed."),
        ("models: []\nmodels: []", "line 2: “models” is there twice."),
        (model(port="true"), "line 6, models[0].service.port: Choose a number"),
        (model(port="8000.5"), "line 6, models[0].service.port: Choose a whole number."),
        (model(port="[1]"), "line 6, models[0].service.port: Choose a number"),
        (model(start_command="[]"), "line 5, models[0].service.start_command: This is needed."),
        (model(start_command="{a: 1}"), "line 5, models[0].service.start_command: Write a text here."),
        (model(start_command="[a, [b]]"), "line 5, models[0].service.start_command[1]: Write a text here."),
        (model(pre_start_actions="x"), "line 7, models[0].service.pre_start_actions: Write a list here"),
        (model(pre_start_actions="[{args: {}}]"), "line 7, models[0].service.pre_start_actions[0].action: This"),
        (model(health_check="{enable: 1, path: /}"), "line 7, models[0].service.health_check.enable: Write true"),
        (
            model(health_check="{path: /, max_retries: 99}"),
            "line 7, models[0].service.health_check.max_retries: Choose",
        ),
        (model().replace("/models", "../x"), "line 3, models[0].model_path: Write a path without .."),
        (f"models: [{'{},' * 21}]", "line 1, models: Write at most 20 models."),
    ],
)
def test_a_wrong_file_is_refused_at_its_line(text: str, mistake: str) -> None:
    assert mistake in "\n".join(mistakes(text))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "? " * 30_000,
        "a: &a [*a]",
        "a: &a [x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
        "x" * 70_000,
        "- x\n" * 16_000,
        "a: !!python/object/apply:os.system [id]",
        "a: !!binary xx",
        "a: \x00",
        "a: *b",
    ],
    ids=lambda text: text[:16],
)
def test_hostile_yaml_is_refused_cheaply(text: str) -> None:
    assert len(mistakes(text)) == 1
