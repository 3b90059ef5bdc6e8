"""Commands about the account that no row of a table can say: its password, and how its user is told of what."""

from typing import Annotated

import typer

from gpuplatform_client import stored_login
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.operations.lookups import LookupFailedError


@reporting()
def change_password() -> None:
    """Change your password, which is asked for; it ends all your tokens, SSH keys and log-ins, this one too."""
    password = typer.prompt("Password", hide_input=True)
    new_password = typer.prompt("New password", hide_input=True, confirmation_prompt=True)
    with connected() as client:
        client.call("POST", "me/password/", {"password": password, "new_password": new_password})
    stored_login.remove()
    output.print("Your password is changed; sign in with it.", highlight=False)


@reporting()
def prefer(
    kind: Annotated[str, typer.Argument(help="Of notifications, as `preferences` lists them")],
    on_page: Annotated[bool | None, typer.Option(help="In the pages")] = None,
    in_browser: Annotated[bool | None, typer.Option(help="By the browser, beside its pages")] = None,
    by_email: Annotated[bool | None, typer.Option(help="By e-mail")] = None,
) -> None:
    """Choose how you are told of something."""
    asked = {"on_page": on_page, "in_browser": in_browser, "by_email": by_email}
    changes = {name: value for name, value in asked.items() if value is not None}
    if not changes:
        raise typer.BadParameter("Name at least one of --on-page, --in-browser and --by-email.")
    with connected() as client:
        rows = client.call("GET", "notifications/preferences/")
        found = [row | changes for row in rows if row["kind"] == kind.upper()]
        if not found:
            raise LookupFailedError(f"There is no kind {kind!r}: there are {', '.join(row['kind'] for row in rows)}.")
        client.call("PUT", "notifications/preferences/", found)
