"""Arguments that name things of the platform; shells complete them by asking it, briefly and silently."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Annotated, Final

import typer

from gpuplatform_client import stored_login
from gpuplatform_client.client import Client

SECONDS: Final = 1.5  # for which somebody who presses Tab waits at most


def completed_by(names_of: Callable[[Client], Iterator[str]]) -> Callable[[str], list[str]]:
    """Return the completion of a word by names that the platform gives."""

    def complete(incomplete: str) -> list[str]:
        found: list[str] = []

        def ask() -> None:
            with suppress(Exception):  # the line that somebody types is no place for errors
                login = stored_login.load()
                with Client(login.url, login.token, retry_seconds=0) as client:
                    found.extend(name for name in names_of(client) if name.startswith(incomplete))

        asking = Thread(target=ask, daemon=True)  # which ends with the program, however slow the platform is
        asking.start()
        asking.join(SECONDS)
        return list(dict.fromkeys(found))

    return complete


def _sessions(client: Client) -> Iterator[str]:
    for session in client.sessions(tab="running"):
        yield session.name
        for member in session.cluster.members[1:] if session.cluster else ():
            yield f"{session.name}.{member.name}"


def _deployments(client: Client) -> Iterator[str]:
    return (deployment.name for deployment in client.deployments())


def _folders(client: Client) -> Iterator[str]:
    return (folder.name for folder in client.folders())


def _images(client: Client) -> Iterator[str]:
    for image in client.images():
        yield image.environment.casefold()
        yield image.reference


complete_session, complete_deployment, complete_folder, complete_image = map(
    completed_by, (_sessions, _deployments, _folders, _images)
)

SessionName = Annotated[str, typer.Argument(help="Name or id of a session", autocompletion=complete_session)]
SessionNames = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names or ids of sessions", autocompletion=complete_session)
]
DeploymentName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name or id of a deployment", autocompletion=complete_deployment)
]
FolderName = Annotated[str, typer.Argument(help="Name or id of a folder", autocompletion=complete_folder)]
ImageName = Annotated[
    str | None,
    typer.Option(
        "--image", help="Environment, environment:version, or an image's reference", autocompletion=complete_image
    ),
]
