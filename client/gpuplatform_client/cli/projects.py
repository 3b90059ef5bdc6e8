"""Commands about projects and their members."""

from typing import Annotated

import typer

from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_list
from gpuplatform_client.operations.lookups import find_member, find_project

app = typer.Typer(help="Projects: list them, and choose their members.", no_args_is_help=True)

ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of a project")]
Email = Annotated[str, typer.Argument(help="E-mail address of an account")]


@app.command("ls")
@reporting()
def list_projects(form: ListOption = ListFormat.TABLE) -> None:
    """List your projects."""
    with connected() as client:
        print_list(
            client.projects(),
            form,
            (
                ("NAME", lambda project: project.name),
                ("ROLE", lambda project: project.role or "-"),
                ("MEMBERS", lambda project: str(project.member_count)),
                ("ACTIVE", lambda project: "yes" if project.is_active else "no"),
            ),
            name_of=lambda project: project.name,
        )


@app.command("members")
@reporting()
def list_members(project: ProjectName, form: ListOption = ListFormat.TABLE) -> None:
    """List the members of a project."""
    with connected() as client:
        print_list(
            client.project_members(find_project(client, project).id),
            form,
            (("E-MAIL", lambda member: member.email), ("ROLE", lambda member: member.role)),
            name_of=lambda member: member.email,
        )


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
