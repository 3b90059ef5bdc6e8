"""The guide's story of converting a session, in a real browser: a package is kept, the home folder is not."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from uuid import uuid4

import pytest
from docker.api import APIClient
from playwright.sync_api import Browser, Page, expect

from accounts.models import User
from engine.containers import HOST_LABEL, INSTALLATION_LABEL, container_name
from hostworker.conversion.base import CONVERSION_LABEL
from resources.amounts.units import GIB, MIB
from resources.gpus.discovery import Machine
from resources.hosts.services import register_host
from resources.models import Host, Image, Installation
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Session
from tests import factories
from tests.browser import signed_in
from tests.containers import ENGINE_URL, remove_containers
from tests.conversions import run_in
from tests.images import ENTRIES, ensure_images
from tests.live import LiveServer, serving
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

pytestmark = [pytest.mark.docker, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LABEL = "Python 3.11"
HOST_NAME = f"story-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A web process that takes the sessions' host for its own machine."""
    with serving(tmp_path_factory.mktemp("live") / "server.log", COMPUTE_HOST_NAME=HOST_NAME) as running:
        yield running


@pytest.fixture
def client() -> Iterator[APIClient]:
    made = APIClient(ENGINE_URL, version="auto")
    yield made
    made.close()


@pytest.fixture
def host(client: APIClient) -> Iterator[Host]:
    """A host whose worker runs; what it leaves in the engine is removed at the end."""
    made = register_host(HOST_NAME, Machine(cpu=2, memory=4 * GIB, devices=()), factories.make_group().name)
    with host_worker(HOST_NAME):
        wait_until_ready(HOST_NAME)
        yield made
    remove_containers(f"{HOST_LABEL}={HOST_NAME}")
    labels = [f"{INSTALLATION_LABEL}={Installation.current_key()}", CONVERSION_LABEL]
    for image in client.images(filters={"label": labels}):
        client.remove_image(image["Id"], force=True)


@pytest.fixture
def owner() -> User:
    return factories.make_user(policy=factories.make_policy(allow_conversion=True, allow_sudo=True))


def wheel() -> bytes:
    """Return a package that needs no index: `keepsake` 1.0, with one module."""
    content = BytesIO()
    info = "keepsake-1.0.dist-info"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("keepsake.py", "WORDS = 'kept in the image'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: keepsake\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return content.getvalue()


def launch(owner: User, host: Host, image: Image) -> Session:
    request = services.LaunchRequest(
        image=image, resource_group=host.group, cpu=1, memory=512 * MIB, shared_memory=64 * MIB, name="workbench"
    )
    (session,) = services.submit(owner, request)
    run_pass()
    until(lambda: Session.objects.get(pk=session.pk).status == Status.RUNNING)
    session.refresh_from_db()
    return session


def put(client: APIClient, session: Session, path: str, content: bytes) -> None:
    """Write a file into the session's home folder, as an upload does."""
    name = container_name(session.pk, session.attempt)
    script = f"import sys, binascii; open({path!r}, 'wb').write(binascii.unhexlify(sys.argv[1]))"
    created = client.exec_create(name, ["python", "-c", script, content.hex()], workdir="/home/work")
    client.exec_start(created["Id"])


def install(page: Page, session: Session) -> None:
    """Install the package for everybody, and leave a file in the home folder, by the terminal."""
    page.goto(f"/sessions/{session.pk}/terminal/")
    expect(page.locator(".xterm-rows")).to_contain_text("$")
    page.keyboard.type("echo mine > notes.txt; sudo pip install -q ./keepsake*.whl && echo inst''alled\n")
    expect(page.locator(".xterm-rows")).to_contain_text("installed")


def save(page: Page, session: Session) -> str:
    """Save the session as an image by its page, with a wrong name first, and return the full name that it shows."""
    page.goto(f"/sessions/{session.pk}/")
    page.get_by_role("link", name="Save as image").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("keepsake 1.0")
    expect(dialog.get_by_label("Name")).to_have_value("workbench")
    dialog.get_by_label("Name").fill("Not good")
    dialog.get_by_role("button", name="Save as image").click()
    expect(dialog).to_contain_text("only small letters and digits")
    dialog.get_by_label("Name").fill("keepsake")
    dialog.get_by_role("button", name="Save as image").click()
    expect(page.locator("#toasts")).to_contain_text("is being saved as keepsake:1")
    done = page.locator(".conversion-list li[data-state=DONE]")
    expect(done).to_be_visible()
    full_name = done.locator(".reference").inner_text()
    expect(page.locator(".timeline-list")).to_contain_text(f"Saved as image {full_name}.")
    return full_name


def end(session: Session) -> None:
    services.terminate(session, actor=session.owner)
    until(lambda: Session.objects.get(pk=session.pk).is_final)


def test_a_package_is_kept_but_no_file_in_home(
    host: Host, owner: User, client: APIClient, browser: Browser, server: LiveServer
) -> None:
    ensure_images([LABEL])
    session = launch(owner, host, factories.make_image(reference=ENTRIES[LABEL].reference))
    put(client, session, "keepsake-1.0-py3-none-any.whl", wheel())
    with signed_in(browser, server, owner) as context:
        page = context.new_page()
        install(page, session)
        full_name = save(page, session)
        assert full_name.endswith(f"-{owner.pk}/keepsake:1")
        end(session)

        second = launch(owner, host, Image.objects.usable_by(owner).get(reference=full_name))
        kept = run_in(client, second, "python -c 'import keepsake; print(keepsake.WORDS)'", "work")
        assert kept == "kept in the image\n"
        assert "notes.txt" not in run_in(client, second, "ls -A /home/work", "work")
        assert run_in(client, second, "id -un; pwd", "work") == "work\n/home/work\n"

        page.goto("/sessions/images/")
        page.get_by_role("link", name="Delete keepsake:1").click()
        expect(page.get_by_role("dialog")).to_contain_text("used by 1 session")
        end(second)
        page.reload()
        page.get_by_role("link", name="Delete keepsake:1").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("is deleted")).to_be_visible()
    until(lambda: not client.images(name=full_name.rpartition(":")[0]))
