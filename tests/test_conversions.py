"""Sessions on real containers that are saved as images: what an image holds, and what is left after a crash."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
import requests
from django.conf import settings
from docker.api import APIClient

from accounts.models import User
from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from hostworker.conversion.base import CONVERSION_LABEL
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Machine
from resources.hosts.services import declare_joining, register_host
from resources.models import Host, Image, Installation, Registry
from resources.registries import credentials
from resources.registries.client import MANIFEST_TYPES
from scheduler.cycle.passes import run_pass
from sessions.conversion import private_images
from sessions.conversion import services as conversions
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Conversion, ConversionState, Session
from tests import factories
from tests.containers import ENGINE_URL, remove_containers
from tests.conversions import layers_of, run_in
from tests.crashing import CRASH_AT
from tests.registry import PASSWORD, USERNAME, LocalRegistry, running_registry
from tests.tiny_image import ensure_tiny_image
from tests.wait import SECONDS, until
from tests.workers import host_worker, wait_until_ready

CRASHING = "tests.crashing.CrashingRuntime"
pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def client() -> Iterator[APIClient]:
    made = APIClient(ENGINE_URL, version="auto")
    yield made
    made.close()


@pytest.fixture
def host(client: APIClient) -> Iterator[Host]:
    """A registered host without a worker; containers and images that its workers leave are removed at the end."""
    name = f"convert-{uuid4().hex[:8]}"
    group = factories.make_group()
    yield register_host(name, Machine(cpu=2, memory=4 * GIB, devices=()), group.name)
    remove_containers(f"{HOST_LABEL}={name}")
    for image in images_of(client):
        client.remove_image(image, force=True)


@pytest.fixture
def owner() -> User:
    return factories.make_user(policy=factories.make_policy(allow_conversion=True, allow_sudo=True))


def images_of(client: APIClient) -> list[str]:
    """Return the images that this installation made of sessions, by id."""
    labels = [f"{INSTALLATION_LABEL}={Installation.current_key()}", CONVERSION_LABEL]
    return [str(image["Id"]) for image in client.images(filters={"label": labels})]


def run(host: Host, owner: User, image: Image, **fields: object) -> Session:
    """Return a session of the image that runs on the host, whose worker must be there."""
    request = services.LaunchRequest(
        image=image, resource_group=host.group, cpu=1, memory=256 * MIB, shared_memory=16 * MIB
    )
    (session,) = services.submit(owner, request)
    run_pass()
    until(lambda: Session.objects.get(pk=session.pk).status == Status.RUNNING)
    session.refresh_from_db()
    return session


def ended(conversion: Conversion) -> Conversion:
    """Return the conversion once it has succeeded or failed."""
    until(lambda: not Conversion.objects.get(pk=conversion.pk).is_active)
    conversion.refresh_from_db()
    return conversion


def test_an_image_holds_changes_but_no_home(host: Host, owner: User, client: APIClient) -> None:
    image = factories.make_image(reference=ensure_tiny_image())
    factories.make_app(image)
    with host_worker(host.name):
        wait_until_ready(host.name)
        session = run(host, owner, image)
        busy = "/bin/busybox"
        script = f"""
            {busy} mkdir -p /opt/tool /home/work/.ssh; echo new >/opt/tool/file; echo mine-alone >/home/work/.ssh/id_rsa
            echo mine-alone >/root/notes; echo mine-alone >/tmp/scratch; {busy} rm /bin/wget; {busy} chmod 700 /opt/tool
        """
        run_in(client, session, script)
        conversion = ended(conversions.request(session, actor=owner, name="tool", tag="1"))
        assert (conversion.state, conversion.problem) == (ConversionState.DONE, "")
        assert run_in(client, session, "cat /opt/tool/file") == "new\n"  # it goes on

        made = Image.objects.get(reference=conversion.reference)
        assert (made.owner, made.is_local, made.environment, made.version) == (owner, True, "tool", "1")
        assert [app.name for app in made.apps.all()] == ["jupyter"]
        assert [row.host for row in made.on_hosts.all()] == [host]
        assert "/opt/tool/file" in conversion.recipe

        *_, top = layers = list(layers_of(client, conversion.reference))
        assert not [name for layer in layers for name, content in layer.items() if b"mine-alone" in content]
        assert top["opt/tool/file"] == b"new\n"
        assert "bin/.wh.wget" in top
        assert not [name for name in top if name.startswith(("home/work", "root", "tmp"))]
        base, config = (client.inspect_image(each)["Config"] for each in (image.reference, conversion.reference))
        assert {key: config[key] for key in base if key != "Labels"} == {
            key: base[key] or config[key] for key in base if key != "Labels"
        }

        second = run(host, owner, made)
        assert run_in(client, second, "exec 2>&1; cat /opt/tool/file; ls /bin/wget /home/work").startswith("new\n")
        assert "mine-alone" not in run_in(client, second, "cat /root/notes /tmp/scratch /home/work/.ssh/id_rsa")


def check_nothing_left(conversion: Conversion, client: APIClient) -> None:
    """Check that the conversion has failed, and that its session runs on."""
    assert ended(conversion).state == ConversionState.FAILED
    assert "worker ended" in conversion.problem
    assert run_in(client, conversion.session, "echo alive") == "alive\n"
    assert images_of(client) == []
    assert not Image.objects.filter(owner=conversion.session.owner).exists()
    assert list((settings.COMPUTE_VAR_DIR / "conversions").iterdir()) == []


def check_next_worker(conversion: Conversion, client: APIClient) -> None:
    """Check that the next worker of the host leaves nothing of the conversion, and that the same can be asked for."""
    session = conversion.session
    with host_worker(str(conversion.host)):
        check_nothing_left(conversion, client)
        again = ended(conversions.request(session, actor=session.owner, name="tool", tag="1"))
        assert (again.state, again.problem) == (ConversionState.DONE, "")


@pytest.mark.parametrize(
    "step",
    [
        "after load",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("before base", "before changes", "after changes", "before load", "before size", "after size")
        ),
    ],
)
def test_a_conversion_killed_at_any_step_leaves_nothing(step: str, host: Host, owner: User, client: APIClient) -> None:
    image = factories.make_image(reference=ensure_tiny_image())
    with host_worker(host.name, COMPUTE_RUNTIME=CRASHING, **{CRASH_AT: step}) as crashed:
        wait_until_ready(host.name)
        conversion = conversions.request(run(host, owner, image), actor=owner, name="tool", tag="1")
        assert crashed.wait(SECONDS) == -9
    assert Conversion.objects.get(pk=conversion.pk).is_active
    declare_joining(host)
    check_next_worker(conversion, client)


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    """A registry with a login, to which images are pushed."""
    with running_registry(with_login=True) as running:
        row = Registry(name="tests", address=running.address, username=USERNAME, is_push_target=True)
        credentials.set_password(row, PASSWORD)
        row.save()
        yield running


def pushed(registry: LocalRegistry, reference: str) -> bool:
    """Return whether the registry has the image."""
    repository, tag = reference.removeprefix(f"{registry.address}/").split(":")
    address = f"http://{registry.address}/v2/{repository}/manifests/{tag}"
    accept = {"Accept": ", ".join(MANIFEST_TYPES)}
    return requests.head(address, headers=accept, auth=(USERNAME, PASSWORD), timeout=SECONDS).ok


@pytest.mark.long
def test_an_image_in_a_registry_starts_on_any_host(
    host: Host, owner: User, client: APIClient, registry: LocalRegistry
) -> None:
    image = factories.make_image(reference=ensure_tiny_image())
    with host_worker(host.name, COMPUTE_RUNTIME=CRASHING, **{CRASH_AT: "after push"}) as crashed:
        wait_until_ready(host.name)
        session = run(host, owner, image)
        run_in(client, session, "echo new >/bin/file")
        conversion = conversions.request(session, actor=owner, name="tool", tag="1")
        assert crashed.wait(SECONDS) == -9
    assert pushed(registry, conversion.reference)

    with host_worker(host.name):
        check_nothing_left(conversion, client)
        assert not pushed(registry, conversion.reference)
        conversion = ended(conversions.request(session, actor=owner, name="tool", tag="1"))
        assert (conversion.state, conversion.problem) == (ConversionState.DONE, "")
        made = conversion.image
        assert made
        assert made.reference.startswith(f"{registry.address}/private/")
        assert (made.is_local, made.registry_digest[:7]) == (False, "sha256:")

        client.remove_image(made.reference)  # as on a host that never had it
        second = run(host, owner, made)
        assert run_in(client, second, "cat /bin/file") == "new\n"
        services.terminate(second, actor=owner)
        until(lambda: Session.objects.get(pk=second.pk).is_final)

        private_images.delete(made, actor=owner)
        until(lambda: images_of(client) == [])
        until(lambda: not pushed(registry, made.reference))
        until(lambda: Image.objects.get(pk=made.pk).registry_digest == "")
