"""Rows for every page of the platform, and the addresses of all pages found by its URL patterns."""

import math
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from django.contrib.admin import site
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from playwright.sync_api import BrowserContext

from accounts.models import SshKey, User
from arrays.tests.making import make_array
from deployments import services as deployment_services
from deployments.access import tokens as deployment_tokens
from deployments.models import Deployment, DeploymentState, ReplicaHealth, RuntimeVariant
from deployments.scaling import services as scaling
from deployments.tests.making import deployment_request, revision_request
from deployments.tests.serving import make_replica
from folders.sharing import folders as folder_services
from folders.storage import paths as storage
from imports import credentials as import_credentials
from imports.models import ImportState
from pages.tests import import_rows as imports
from resources.amounts.units import GIB, MIB
from resources.gpus import simulated as simulated_gpus
from resources.models import Image
from sessions.lifecycle import Status
from sessions.models import Conversion, ConversionState, Session, SessionUsage, ShareLink
from specs.tests.template_rows import make_template
from tests.factories import (
    make_app,
    make_endpoint,
    make_group,
    make_host,
    make_image,
    make_policy,
    make_preset,
    make_project,
    make_root,
    make_session,
    make_user,
    run_cluster,
    run_session,
    session_in,
)
from webhooks import services as webhook_services
from webhooks.event_types import DEFAULT_TYPES
from webhooks.models import WebhookAttempt

# Addresses of programs and of apps.
OTHER: Final = re.compile(r"^/(api/(?!docs/)|healthz|apps/)")
KINDS: Final = frozenset(  # one page of each kind
    [
        "home",
        "sessions-list",
        "sessions-launch",
        "sessions-detail",
        "sessions-terminate",
        "sessions-terminal",
        "folders-list",
        "folders-browse",
        "endpoints-apps",
        "overview-hosts",
        "overview-environments",
        "accounts-profile",
        "help-index",
        "help-page",
        "api-docs",
        "admin-index",
        "admin-user",
        "overview-user",
        "admin-accounts-resourcepolicy-change",
        "admin-notifications-announcement-add",
        "admin-resources-resourcegroup-change",
        "admin-deployments-deploymenthost-add",
    ]
)
NOTEBOOK: Final = """{"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Results"]},
    {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": ["1 + 1"]}],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"""


@dataclass
class PageWorld:
    """A lab with hosts, people, sessions in every state, folders and environments."""

    admin: User
    user: User
    arguments: dict[str, Any] = field(default_factory=dict)  # of URL patterns, by their names
    extra: dict[str, str] = field(default_factory=dict)  # pages besides one of each pattern

    def pages(self, context: BrowserContext, among: Container[str] | None = None) -> dict[str, str]:
        """Return the paths of all pages, by names that files may have: what a GET shows as a whole HTML document.

        `among` are the names to look at, None for all.
        """
        found: dict[str, str] = {}
        for name, path in self.addresses().items():
            if among is not None and name not in among:
                continue
            response = context.request.get(path, max_redirects=0)
            assert response.status != 500, path
            if response.status == 200 and "<html" in response.text()[:500]:
                found[name] = path
        return found

    def add_administration(self, *pages: str) -> None:
        """Add the administration's lists, and what `pages` names of "add" and "change", of a row where there is one."""
        self.extra["admin-index"] = "/admin/"
        for model in site._registry:
            label = model._meta.label_lower
            name, path = label.replace(".", "-"), f"/admin/{label.replace('.', '/')}/"
            self.extra[f"admin-{name}"] = path
            if "add" in pages:
                self.extra[f"admin-{name}-add"] = f"{path}add/"
            if "change" in pages and (row := model._default_manager.first()):
                self.extra[f"admin-{name}-change"] = f"{path}{row.pk}/change/"

    def addresses(self) -> dict[str, str]:
        """Return the paths of all URL patterns that are not of programs, and of the pages besides, by their names."""
        return {**dict(self._addresses()), **self.extra}

    def _addresses(self) -> Iterator[tuple[str, str]]:
        for name, pattern in _patterns(get_resolver()):
            arguments = {key: self.argument(name, key) for key in pattern.pattern.converters} or {
                key: self.argument(name, key) for key in getattr(pattern.pattern, "regex", re.compile("")).groupindex
            }
            try:
                path = reverse(name, kwargs=arguments)
            except NoReverseMatch:
                continue
            if not OTHER.match(path) and not name.startswith("admin:"):
                yield name.replace(":", "-"), path

    def argument(self, name: str, key: str) -> Any:
        """Return what the pattern's argument `key` is here."""
        return self.arguments.get(f"{name}.{key}", self.arguments.get(key, "1"))


def make_page_world(directory: Path) -> PageWorld:
    """Return rows for every page; files of data folders lie below `directory`."""
    policy = make_policy(name="students", cpu=32, memory=128 * GIB, fgpu=8000, max_sessions=8)
    admin = make_user(email="ada.admin@example.org", is_superuser=True)
    user = make_user(email="mina.park@example.org", policy=policy, first_name="Mina", last_name="Park")
    world = PageWorld(admin, user)
    group = make_group(name="default", fgpu_per_gpu=4)
    topology = simulated_gpus.topology(simulated_gpus.declared("2x8GiB numa=0 nvlink=4,2x8GiB numa=1")).as_json()
    amounts: dict[str, Any] = {"group": group, "gpus": 4, "cpu": 64, "memory": 256 * GIB, "gpu_topology": topology}
    amounts["topology"] = "hall-2/row-b/rack-07/leaf-switch-3"
    hosts = [make_host(name=f"gpu-{number:02d}", **amounts) for number in (1, 2, 3)]
    make_host(name="gpu-04", group=group, gpus=2, status="LOST")
    image = make_image(environment="PyTorch", version="2.7 (CUDA 12.6)", reference="gpuplatform/pytorch:2.7")
    make_app(image)
    make_image(environment="Python", version="3.13", reference="gpuplatform/python:3.13")
    for name, cpu, gib, fgpu in (("small", 1, 2, 0), ("medium", 4, 16, 1000), ("large", 16, 64, 8000)):
        make_preset(name=name, cpu=cpu, memory=gib * GIB, fgpu=fgpu)
    running = _sessions(world, hosts, image)
    _folders(world, directory, hosts)
    _deployments(world, hosts, image)
    endpoint = make_endpoint(running, app="jupyter", title="Jupyter", port=8888)
    link = ShareLink.objects.create(endpoint=endpoint, digest="0" * 43, expires_at=timezone.now() + timedelta(days=1))
    private = make_image(environment="mine", version="1", reference="private/mine:1", owner=admin)
    saved = {"session": running, "state": ConversionState.DONE.value, "reference": "private/mine:1"}
    conversion = Conversion.objects.create(**saved, name="mine", tag="1", recipe="FROM scratch", image=private)
    template = make_template(admin, description="Our run, with a learning rate")
    key = SshKey.objects.create(owner=admin, title="laptop", text="ssh-ed25519 AAAA", fingerprint="SHA256:abc")
    webhook, _ = webhook_services.create(admin, url="https://ci.example.org/hooks/gpu", types=DEFAULT_TYPES, name="CI")
    delivery = webhook_services.send_test(webhook)
    outcome = {"status": 500, "duration_ms": 38, "response": "Internal Server Error"}
    WebhookAttempt.objects.create(delivery=delivery, **outcome)
    world.arguments |= {
        "array_id": make_array(admin, image=image.reference, resource_group=running.resource_group.name).pk,
        "import_id": _imports(world, running),
        "webhook_id": webhook.pk,
        "delivery_id": delivery.pk,
        "endpoints:app.name": "jupyter",
        "link_id": link.pk,
        "template_id": template.pk,
        "image_id": private.pk,
        "conversion_id": conversion.pk,
        "key_id": key.pk,
        "help:page.name": "apps",
        "name": "gpu-01",
        "slug": "resources",
        "user_id": user.pk,
        "group_id": group.pk,
        "host_id": hosts[0].pk,
        "uid": "0b8a6bd4-6a9f-4d37-8a53-5b6c2e0c9a11",
    }
    world.add_administration("add", "change")
    world.extra |= {f"launch-{slug}": f"/sessions/launch/{slug}/" for slug in ("folders", "review")}
    world.extra |= {
        "admin-user": f"/admin/accounts/user/{user.pk}/change/",
        "admin-image": f"/admin/resources/image/{image.pk}/change/",
        "admin-session": f"/admin/compute/session/{running.pk}/change/",
        "admin-delete-user": f"/admin/accounts/user/{user.pk}/delete/",
    }
    return world


def _imports(world: PageWorld, session: Session) -> str:
    """Make imports in every state, and a key; return the id of one that is done."""
    owner = world.admin
    imports.make_import(owner, state=ImportState.FETCHING, progress="Receiving objects: 42 %", session=session)
    failed = imports.make_import(owner, state=ImportState.FAILED, problem="The repository asks for a log-in.")
    world.extra["import-failed"] = f"/imports/{failed.pk}/"
    import_credentials.add_key(owner, name="course", host="github.com")
    return imports.make_import(owner).pk


def _sessions(world: PageWorld, hosts: list[Any], image: Image) -> Session:
    """Make sessions in every state, and return one that runs and has used its share for an hour."""
    common: dict[str, Any] = {"owner": world.user, "image": image, "cpu": 4, "memory": 16 * GIB, "fgpu": 1000}
    running = run_session(host=hosts[0], name="train-resnet", **common)
    run_session(host=hosts[1], name="notebook", **common)
    run_session(host=hosts[0], name="evaluate-llm", **common | {"owner": world.admin, "fgpu": 4000})
    members = run_cluster(3, hosts=hosts[:2], name="train-llama", **common)
    world.extra |= {"session-cluster": f"/sessions/{members[0].pk}/", "session-member": f"/sessions/{members[1].pk}/"}
    for status in Status:
        if status not in (Status.RUNNING, Status.PENDING):
            ended = session_in(status, host=hosts[2], name=f"sweep-{status.lower()}", **common)
            world.extra[f"session-{status.lower()}"] = f"/sessions/{ended.pk}/"
    waiting = make_session(name="large-batch", resource_group=hosts[0].group, **common | {"fgpu": 16000})
    world.extra |= {"session-pending": f"/sessions/{waiting.pk}/"}
    world.extra |= {f"sessions-{tab}": f"/sessions/?tab={tab}" for tab in ("finished", "others")}
    world.extra |= {"sessions-parked": "/sessions/?tab=running&status=PARKED"}
    now = timezone.now()
    Session.objects.filter(pk=running.pk).update(started_at=now - timedelta(hours=1))
    SessionUsage.objects.bulk_create(
        SessionUsage(
            session=running,
            at=now - timedelta(seconds=10 * step),
            cpu_milli=int(2500 + 1200 * math.sin(step / 9)),
            memory=int((8 + 3 * math.sin(step / 40)) * GIB),
            received=int(2 * MIB * abs(math.sin(step / 17))),
            sent=100_000,
            gpu_memory=int(1.4 * GIB),
            gpu_utilisation=int(60 + 30 * math.sin(step / 13)),
        )
        for step in range(360)
    )
    world.arguments["session_id"] = running.pk
    project = make_project(world.user, managers=[world.admin], name="vision", description="Models that see")
    make_project(world.user, name="nlp", is_active=False)
    Session.objects.filter(pk=running.pk).update(project=project)
    world.arguments["project_id"] = project.pk
    return running


def _deployments(world: PageWorld, hosts: list[Any], image: Image) -> None:
    """Make deployments: one whose second revision is being rolled out, one that fails, and one that has ended."""
    variant = RuntimeVariant.objects.get(name="vllm")
    amounts: dict[str, Any] = {"image": image, "cpu": 4, "memory": 24 * GIB, "fgpu": 500}

    def make(name: str, **options: Any) -> Deployment:
        revision = revision_request(
            **amounts, variant=variant, command="", note="As trained", environment={"SEED": "7"}
        )
        asked = deployment_request(host=hosts[0], name=name, revision=revision, **options)
        return deployment_services.create(world.admin, asked)

    chat = make("chat", replicas=3)
    for _ in range(2):
        make_replica(chat)
    make_replica(chat, draining_since=timezone.now())
    tuned = revision_request(**amounts, variant=variant, command="", note="Tuned on our tickets")
    deployment_services.new_revision(chat, tuned, actor=world.admin)
    chat.refresh_from_db()
    make_replica(chat)
    make_replica(chat, health=ReplicaHealth.STARTING.value, health_detail="Nothing listens on port 8000 yet.")
    token = deployment_tokens.create_token(chat, name="web shop", actor=world.admin, rate_per_minute=600).token
    revoked = deployment_tokens.create_token(chat, name="old", actor=world.admin).token
    deployment_tokens.revoke_token(revoked, actor=world.admin)
    Deployment.objects.filter(pk=chat.pk).update(state=DeploymentState.UPDATING)
    scaling.change(chat, {"max_replicas": 4, "idle_seconds": 1800}, actor=world.admin)
    scaling.add_rule(chat, metric="outstanding", target=16, actor=world.admin)
    scaling.add_rule(chat, metric="gpu", target=60, is_paused=True, actor=world.admin)
    failing, open_one, ended = make("embeddings"), make("captions", is_public=True), make("old-chat")
    make_replica(failing, health=ReplicaHealth.UNHEALTHY.value, health_detail="GET /health was answered with 503.")
    problem = "A replica of revision 1 has failed. Its process has ended with exit code 1.\nCUDA error: out of memory"
    Deployment.objects.filter(pk=failing.pk).update(state=DeploymentState.FAILING, problem=problem)
    make_replica(open_one)
    Deployment.objects.filter(pk=open_one.pk).update(state=DeploymentState.HEALTHY)
    deployment_services.end(ended, actor=world.admin)
    world.arguments |= {"deployment_id": chat.pk, "token_id": token.pk, "number": 1}
    world.extra |= {
        "deployment-failing": f"/deployments/{failing.pk}/",
        "deployment-ended": f"/deployments/{ended.pk}/",
    }
    world.extra |= {"deployments-ended": "/deployments/?ended=1", "deployment-open": f"/deployments/{open_one.pk}/"}


def _folders(world: PageWorld, directory: Path, hosts: list[Any]) -> None:
    root = make_root(*hosts, name="data", path=str(directory), is_default=True)
    storage.prepare_root(root)
    folder = folder_services.create(world.admin, "mnist", root)
    files = Path(storage.root_directory(root).folder_path(folder.holder_number, folder.pk)) / "files"
    (files / "runs").mkdir()
    (files / "train.py").write_text("print('hello')\n")
    (files / "results.ipynb").write_text(NOTEBOOK)
    world.arguments["folder_id"] = folder.pk
    world.extra |= {
        f"file-{name.partition('.')[2]}": f"/folders/{folder.pk}/file/?path={name}"
        for name in ("train.py", "results.ipynb")
    }
    world.extra["folder-edit"] = f"/folders/{folder.pk}/edit/?path=train.py"


def _patterns(resolver: URLResolver, namespaces: tuple[str, ...] = ()) -> Iterator[tuple[str, URLPattern]]:
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            yield from _patterns(each, (*namespaces, each.namespace) if each.namespace else namespaces)
        elif each.name:
            yield ":".join((*namespaces, each.name)), each
