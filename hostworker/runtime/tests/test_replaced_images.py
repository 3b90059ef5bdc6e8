"""Images of the catalogue whose successor is built, on the Docker Engine."""

import io
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from docker import APIClient
from docker.errors import ImageNotFound

from hostworker.runtime.docker.client import ProcessClient
from hostworker.runtime.docker.images.pulls import DockerImages
from hostworker.runtime.tests.runtime_worlds import ENGINE_URL
from resources.images import replaced

REPOSITORY = "gpuplatform-test/replaced"
pytestmark = pytest.mark.docker


@pytest.fixture
def client() -> Iterator[APIClient]:
    with closing(APIClient(ENGINE_URL, version="auto")) as client:
        yield client


def make_image(client: APIClient, tag: str) -> str:
    """Give a name to a new image of one empty file, and return its id."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(uuid.uuid4().hex))
    client.import_image_from_data(buffer.getvalue(), repository=REPOSITORY, tag=tag)
    return str(client.inspect_image(f"{REPOSITORY}:{tag}")["Id"])


def test_a_replaced_image_stays_while_a_container_uses_it(client: APIClient) -> None:
    images, tag = DockerImages(ProcessClient(ENGINE_URL, 60), 60), uuid.uuid4().hex
    image = make_image(client, tag)
    container = client.create_container(image, "true")
    make_image(client, tag)
    replaced.mark(client, image)
    images.remove_replaced()
    assert [name.partition(":")[0] for name in client.inspect_image(image)["RepoTags"]] == [replaced.REPOSITORY]
    client.remove_container(container)
    images.remove_replaced()
    with pytest.raises(ImageNotFound):
        client.inspect_image(image)
    replaced.mark(client, image)  # which has gone
    client.remove_image(f"{REPOSITORY}:{tag}")
