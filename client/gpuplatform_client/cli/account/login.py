"""Commands that sign in and out."""

from typing import Annotated

import typer

from gpuplatform_client import stored_login
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_for_programs
from gpuplatform_client.client import Client
from gpuplatform_client.errors import ClientError
from gpuplatform_client.stored_login import TOKEN_VARIABLE, URL_VARIABLE, StoredLogin


@reporting()
def login(
    url: Annotated[
        str,
        typer.Argument(
            envvar=URL_VARIABLE,
            default_factory=stored_login.platform_url,
            show_default=False,
            help="Of the platform, such as https://gpu.example.org; left out, the one that this program is from",
        ),
    ],
    email: Annotated[str | None, typer.Option(help="Asked for when left out")] = None,
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE, help="A token that you made on a page")] = None,
    code: Annotated[str, typer.Option(help="Of the second factor, where the account has one")] = "",
) -> None:
    """Sign in, and store the token for the other commands."""
    if not url.startswith(("http://", "https://")):
        raise ClientError("Write the whole address, such as https://gpu.example.org.")
    if token is None:
        email = email or typer.prompt("E-mail")
        password = typer.prompt("Password", hide_input=True)
        with Client(url) as client:
            token = client.login(email, password, code).token
    with Client(url, token) as client:
        account = client.account()
    path = stored_login.save(StoredLogin(url, token))
    output.print(f"Signed in as {account.email}; the token is in {path}.", highlight=False, markup=False)


@reporting()
def logout() -> None:
    """Revoke the token and forget it."""
    try:
        with connected() as client:
            client.logout()
    finally:
        stored_login.remove()


@reporting()
def whoami(form: ListOption = ListFormat.TABLE) -> None:
    """Print who is signed in, and where."""
    with connected() as client:
        account = client.account()
        if not print_for_programs(account, form, account.email):
            output.print(f"{account.email} at {stored_login.load().url}", highlight=False, markup=False)
