"""Saved containers, for each implementation alike, and what is in them with the real engine."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.containers import saved_reference
from hostworker.runtime.docker.images.saved import environment_of
from hostworker.runtime.tests.runtime_worlds import (
    DockerWorld,
    World,
    launch,
    make_spec,
)
from hostworker.runtime_protocol import Runtime, SaveError
from tests.wait import until


@pytest.fixture
def runtime(world: World) -> Iterator[Runtime]:
    runtime = world.runtime()
    yield runtime
    for key in runtime.saved_containers.keys():  # noqa: SIM118  # no mapping
        runtime.remove(key[0], key[1] + 1)
        runtime.saved_containers.discard(*key)


def test_stopped_container_is_saved_once_and_starts_again(world: World, runtime: Runtime) -> None:
    saved, spec = runtime.saved_containers, launch(runtime, make_spec(world.image))
    key = (spec.session, spec.attempt)
    with pytest.raises(SaveError):
        saved.save(*key)  # it runs
    if isinstance(world, DockerWorld):
        script = "echo kept > /root/file; touch /added"
        assert runtime.execute(*key, ["/bin/sh", "-c", script], {}).exit_code == 0
    runtime.stop(*key, grace_seconds=1)
    assert saved.reference(*key) is None
    written = saved.save(*key)
    runtime.remove(*key)
    assert saved.save(*key) == written  # saved already; the container is not needed
    assert saved.keys() == {key}
    assert world.runtime(installation="another").saved_containers.keys() == set()
    reference = saved.reference(*key)
    assert reference == saved_reference(*key)
    again = launch(runtime, replace(spec, attempt=2, image=reference or ""))
    if isinstance(world, DockerWorld):
        assert runtime.execute(again.session, 2, ["/bin/cat", "/root/file"], {}).output == "kept\n"
        assert written > 0
        runtime.stop(again.session, 2, grace_seconds=1)
        assert saved.save(again.session, 2) >= written  # what the first wrote counts on
        saved.discard(again.session, 2)
    runtime.remove(again.session, 2)

    def is_gone() -> bool:
        saved.discard(*key)  # its container may still be there: it is deleted later; gone already is success
        return not saved.keys()

    assert until(is_gone)
    assert saved.reference(*key) is None
    with pytest.raises(SaveError):
        saved.save(*key)


def test_saved_image_tells_the_variables_of_the_image_below() -> None:
    below = {"Config": {"Env": ["PATH=/bin"], "Labels": None}}
    above = {
        "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=old"], "Labels": {"gpuplatform.environment": json.dumps(["A=1"])}}
    }
    assert (environment_of(below), environment_of(above), environment_of({"Config": None})) == (
        ["PATH=/bin"],
        ["A=1"],
        [],
    )
