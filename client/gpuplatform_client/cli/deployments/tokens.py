"""Commands about the tokens of deployments, and what they use."""

from typing import Annotated

import typer

from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.names import DeploymentName
from gpuplatform_client.cli.printing import ListFormat, ListOption, fields_of, print_list
from gpuplatform_client.client import Client
from gpuplatform_client.models.deployments import DeploymentInfo, DeploymentTokenInfo
from gpuplatform_client.operations.lookups import LookupFailedError, find_deployment

tokens = typer.Typer(help="Tokens of a deployment.", no_args_is_help=True)
TokenName = Annotated[str, typer.Argument(metavar="TOKEN", help="Its name")]
Rate = Annotated[int | None, typer.Option(min=0, help="Requests a minute at most; 0: no limit")]
MonthlyRequests = Annotated[int | None, typer.Option(min=0, help="Of a calendar month (UTC) at most; 0: no limit")]
MonthlyTokens = Annotated[int | None, typer.Option(min=0, help="That models read and write in a month; 0: no limit")]


@tokens.command("create")
@reporting()
def create_token(
    name: DeploymentName,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="A name of your choice")],
    days: Annotated[int | None, typer.Option(min=1, help="Valid for; by default until it is revoked")] = None,
    rate: Rate = None,
    monthly_requests: MonthlyRequests = None,
    monthly_tokens: MonthlyTokens = None,
) -> None:
    """Make a token and print its secret, which is shown this once."""
    with connected() as client:
        found = find_deployment(client, name)
        made = client.create_deployment_token(
            found.id, token, days=days, **_limits(rate, monthly_requests, monthly_tokens)
        )
        output.print(made.secret, highlight=False, markup=False)


@tokens.command("ls")
@reporting()
def list_tokens(name: DeploymentName, form: ListOption = ListFormat.TABLE) -> None:
    """List the tokens of a deployment, without their secrets, with what they have used in this month (UTC)."""
    with connected() as client:
        print_list(
            client.deployment_tokens(find_deployment(client, name).id),
            form,
            (
                *fields_of("name created_at expires_at last_used_at"),
                ("RATE", lambda each: str(each.rate_per_minute or "-")),
                ("REQUESTS", lambda each: _of_budget(each.used_requests, each.monthly_requests)),
                ("TOKENS", lambda each: _of_budget(_read_and_written(each), each.monthly_tokens)),
                *fields_of("revoked_at"),
            ),
            name_of=lambda each: each.name,
        )


@tokens.command("revoke")
@reporting()
def revoke_token(name: DeploymentName, token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its name")]) -> None:
    """Revoke a token at once."""
    with connected() as client:
        found = find_deployment(client, name)
        for token_id in _ids(client, found, token):
            client.revoke_deployment_token(found.id, token_id)


@tokens.command("set")
@reporting()
def change_limits(
    name: DeploymentName,
    token: TokenName,
    rate: Rate = None,
    monthly_requests: MonthlyRequests = None,
    monthly_tokens: MonthlyTokens = None,
) -> None:
    """Change limits of a token, such as a budget that is spent."""
    limits = _limits(rate, monthly_requests, monthly_tokens)
    with connected() as client:
        found = find_deployment(client, name)
        for token_id in _ids(client, found, token):
            client.change_deployment_token(found.id, token_id, **limits)


@reporting()
def usage(name: DeploymentName, form: ListOption = ListFormat.TABLE) -> None:
    """List what each token of a deployment, and requests without one, have used in each month (UTC)."""
    with connected() as client:
        print_list(
            client.deployment_usage(find_deployment(client, name).id),
            form,
            [
                ("MONTH", lambda each: f"{each.month:%Y-%m}"),
                *fields_of("name requests prompt_tokens completion_tokens"),
            ],
            name_of=lambda each: each.name or "-",
        )


def _limits(rate: int | None, monthly_requests: int | None, monthly_tokens: int | None) -> dict[str, int]:
    limits = {"rate_per_minute": rate, "monthly_requests": monthly_requests, "monthly_tokens": monthly_tokens}
    return {name: value for name, value in limits.items() if value is not None}


def _ids(client: Client, found: DeploymentInfo, token: str) -> list[int]:
    """Return the ids of the tokens of this name that are not revoked. Raises LookupFailedError if there is none."""
    ids = [each.id for each in client.deployment_tokens(found.id) if each.name == token and not each.revoked_at]
    if not ids:
        raise LookupFailedError(f"{found.name} has no valid token {token!r}.")
    return ids


def _read_and_written(token: DeploymentTokenInfo) -> int:
    return token.used_prompt_tokens + token.used_completion_tokens


def _of_budget(used: int, budget: int) -> str:
    return f"{used}/{budget}" if budget else str(used)
