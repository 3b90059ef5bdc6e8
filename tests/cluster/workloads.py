"""The deployment that is kept, and the imports, of a cluster: what they need, and when they have settled."""

from typing import Final

from deployments import services as deployments
from deployments.models import Deployment, DeploymentState
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from imports.models import Import, ImportState
from resources.amounts.units import MIB
from resources.models import Image, ResourceGroup
from tests.cluster.machines import Engine
from tests.factories import make_image, make_policy, make_user
from tests.tiny_image import TINY_IMAGE

FETCHING_IMAGE: Final = "gpuplatform/python:3.11"
# Stands for the interpreter: an import is a program that says how far it is, and then what it has found.
PYTHON: Final = """#!/bin/sh
echo '{"progress": "Fetching", "bytes": 1}'; sleep 4; echo '{"found": {"files": 3}}'
"""
SERVE: Final = 'mkdir -p /tmp/www; echo REVISION >/tmp/www/health; exec busybox httpd -f -p "$PORT" -h /tmp/www'
NAME: Final = "kept"
REPLICAS: Final = 2


def take_fetching_image(engine: Engine) -> None:
    """Make the image in which imports fetch, with a stand-in for Python, on an engine that has the tiny one."""
    client = engine.client()
    command = ["sh", "-c", 'printf "%s" "$1" >/bin/python3; chmod 755 /bin/python3', "sh", PYTHON]
    container = client.create_container(TINY_IMAGE, command, user="root")["Id"]
    client.start(container)
    client.wait(container)
    repository, _, tag = FETCHING_IMAGE.partition(":")
    client.commit(container, repository=repository, tag=tag)
    client.remove_container(container, force=True)
    client.close()


def prepare(group: ResourceGroup) -> None:
    """Make the deployment and the owner of imports, before anything fails."""
    image = make_image(reference=TINY_IMAGE)
    make_image(reference=FETCHING_IMAGE, environment="Python", version="3.11")
    owner = make_user(policy=make_policy())
    request = DeploymentRequest(
        name=NAME, resource_group=group, revision=revision(image, 1), replicas=REPLICAS, drain_seconds=2
    )
    deployments.create(owner, request)


def unsettled() -> list[str]:
    """Return the deployments that are not as wanted, and the imports under way."""
    texts = [
        f"deployment {row.name} is {row.state}: {row.problem}"
        for row in Deployment.objects.exclude(state__in=(DeploymentState.HEALTHY, DeploymentState.ENDED))
    ]
    return texts + [f"import {row.pk} is {row.state}: {row.progress}" for row in Import.objects.live()]


def wrong_ends() -> list[str]:
    """Return the imports that have ended without a word of why."""
    failed = Import.objects.filter(state=ImportState.FAILED, problem="")
    return [f"import {row.pk} has failed, and nothing says why" for row in failed]


def end() -> None:
    """Have the owner end the deployment."""
    for row in Deployment.objects.live():
        deployments.end(row, actor=row.owner)


def revision(image: Image, number: int) -> RevisionRequest:
    return RevisionRequest(
        image=image,
        cpu=1,
        memory=64 * MIB,
        shared_memory=16 * MIB,
        command=SERVE.replace("REVISION", str(number)),
        health=HealthCheck(path="/health", interval_seconds=2, timeout_seconds=2, retries=3, start_seconds=60),
    )
