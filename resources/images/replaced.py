"""Images of the catalogue whose successor is built: they have another name until no container uses them any more.

Used by the builder, which gives them that name, and by the host worker, which removes them again and again.
"""

from typing import Final

from docker import APIClient
from docker.errors import APIError, ImageNotFound

REPOSITORY: Final = "gpuplatform-replaced"
_CONFLICT: Final = 409  # a container uses it


def mark(client: APIClient, image_id: str) -> None:
    """Name an image that has lost its own name; no-op for one that is gone. Raises DockerException."""
    try:
        client.tag(image_id, REPOSITORY, image_id.rpartition(":")[2][:12])
    except ImageNotFound:
        return


def remove_unused(client: APIClient) -> None:
    """Remove those that no container uses, whoever has named them. Raises DockerException."""
    for image in client.images(REPOSITORY):
        for name in image["RepoTags"] or ():
            if name.startswith(f"{REPOSITORY}:"):
                _remove(client, name)


def _remove(client: APIClient, name: str) -> None:
    try:
        client.remove_image(name)
    except ImageNotFound:
        return
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
