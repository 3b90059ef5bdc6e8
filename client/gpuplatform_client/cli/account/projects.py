"""Commands about projects and their members."""

from typing import Annotated

import typer

from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.operations.lookups import find_member, find_project

app = typer.Typer(help="Projects: list them, and choose their members.", no_args_is_help=True)

ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of a project")]
Email = Annotated[str, typer.Argument(help="E-mail address of an account")]


@app.command("add")
@reporting()
def add_member(
    project: ProjectName,
    email: Email,
    manager: Annotated[bool, typer.Option("--manager", help="As a manager, who chooses members too")] = False,
) -> None:
    """Make somebody with an account a member; for managers."""
    with connected() as client:
        found = find_project(client, project)
        made = client.add_project_member(found.id, email, role="manager" if manager else "member")
        output.print(f"{made.email}: {made.role} of {found.name}", highlight=False, markup=False)


@app.command("role")
@reporting()
def change_role(
    project: ProjectName, email: Email, role: Annotated[str, typer.Argument(help="member or manager")]
) -> None:
    """Make a member a manager, or a manager a member; for managers."""
    with connected() as client:
        found = find_project(client, project)
        member = client.change_project_member(found.id, find_member(client, found, email).id, role=role)
        output.print(f"{member.email}: {member.role} of {found.name}", highlight=False, markup=False)


@app.command("remove")
@reporting()
def remove_member(project: ProjectName, email: Email) -> None:
    """End a membership, for managers; or leave a project."""
    with connected() as client:
        found = find_project(client, project)
        client.remove_project_member(found.id, find_member(client, found, email).id)


@app.command("invite")
@reporting()
def invite(project: ProjectName, email: Annotated[str, typer.Argument(help="Of somebody without an account")]) -> None:
    """Have somebody mailed a link that makes an account which is a member; for managers."""
    with connected() as client:
        found = find_project(client, project)
        client.invite_to_project(found.id, email)
        output.print(f"{email} is invited to {found.name}.", highlight=False, markup=False)
