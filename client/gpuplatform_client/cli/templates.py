"""Commands about launch templates."""

from pathlib import Path
from typing import Annotated

import typer

from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.printing import ListFormat, ListOption, print_list
from gpuplatform_client.cli.spec_files import print_made, print_outlook, read_file
from gpuplatform_client.errors import ClientError
from gpuplatform_client.models.specs import SpecResult
from gpuplatform_client.models.templates import TemplateParameterInfo
from gpuplatform_client.operations.lookups import find_template

app = typer.Typer(help="Saved launches with parameters.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name or id of a template")]


@app.command("ls")
@reporting()
def list_templates(
    search: Annotated[str, typer.Option(help="Part of the name or description")] = "",
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List the templates that you may launch, the most used first."""
    with connected() as client:
        print_list(
            client.templates(q=search),
            form,
            (
                ("NAME", lambda each: each.name),
                ("OF", lambda each: each.holder),
                ("KIND", lambda each: each.kind),
                ("VERSION", lambda each: str(each.version)),
                ("LAUNCHES", lambda each: str(each.launches)),
                ("DESCRIPTION", lambda each: each.description),
            ),
            wide=(("ID", lambda each: each.id),),
            name_of=lambda each: each.name,
        )


@app.command("show")
@reporting()
def show_template(name: Name, form: ListOption = ListFormat.TABLE) -> None:
    """Show what a template asks for."""
    with connected() as client:
        found = client.template(find_template(client, name).id)
        print_list(
            found.current.parameters if found.current else (),
            form,
            (
                ("PARAMETER", lambda each: each.name),
                ("TYPE", lambda each: each.type),
                ("DEFAULT", lambda each: "-" if each.default is None else str(each.default)),
                ("ALLOWED", _allowed),
                ("HELP", lambda each: each.help or ""),
            ),
            name_of=lambda each: each.name,
        )


@app.command("create")
@reporting()
def create_template(
    file: Annotated[Path, typer.Option("--file", "-f", allow_dash=True, help="A spec file; -: input")],
) -> None:
    """Save the templates of a spec file; where you have one of the name, as its next version."""
    text = read_file(file)
    with connected() as client:
        if others := {each.kind for each in client.run_spec(text, dry_run=True).documents} - {"template"}:
            raise ClientError(f"This file has a {min(others)}, too: `gpuplatform run -f` makes all of it.")
        print_made(client.run_spec(text))


@app.command("launch")
@reporting()
def launch_template(
    name: Name,
    values: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of a parameter; repeatable")] = None,
    version: Annotated[int | None, typer.Option(help="Another than the current one")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be launched, and when")] = False,
) -> None:
    """Launch a template and print what was made."""
    pairs = [each.partition("=") for each in values or ()]
    if wrong := [key for key, equals, _ in pairs if not (key and equals)]:
        raise typer.BadParameter(f"Write NAME=VALUE instead of {wrong[0]!r}.", param_hint="--set")
    with connected() as client:
        found = find_template(client, name)
        given = {key: text for key, _, text in pairs}
        made = client.launch_template(found.id, given, version=version, dry_run=dry_run)
        (print_outlook if dry_run else print_made)(SpecResult(dry_run=dry_run, documents=(made,)))


@app.command("versions")
@reporting()
def list_versions(
    name: Name,
    make_current: Annotated[int | None, typer.Option(help="Number of the version to launch from now on")] = None,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """List the versions of a template."""
    with connected() as client:
        found = find_template(client, name)
        if make_current is not None:
            found = client.use_template_version(found.id, make_current)
        print_list(
            client.template_versions(found.id),
            form,
            (
                ("VERSION", lambda each: str(each.number)),
                ("CURRENT", lambda each: "yes" if each.number == found.version else ""),
                ("BY", lambda each: each.author or "-"),
                ("AT", lambda each: f"{each.created_at:%Y-%m-%d %H:%M}"),
            ),
            name_of=lambda each: str(each.number),
        )


@app.command("export")
@reporting()
def export_template(
    name: Name, version: Annotated[int | None, typer.Option(help="Another than the current one")] = None
) -> None:
    """Print a template as a spec file."""
    with connected() as client:
        found = client.template(find_template(client, name).id)
        shown = client.template_version(found.id, version or found.version)
        output.out(shown.spec, end="", highlight=False)


@app.command("rm")
@reporting()
def delete_template(name: Name) -> None:
    """Delete a template; what was launched from it goes on."""
    with connected() as client:
        client.delete_template(find_template(client, name).id)


def _allowed(parameter: TemplateParameterInfo) -> str:
    """Return which values a parameter takes, beyond its type."""
    if parameter.choices:
        return ", ".join(parameter.choices)
    bounds = [str(each) if each is not None else "" for each in (parameter.min, parameter.max)]
    return " to ".join(bounds).strip() if any(bounds) else ""
