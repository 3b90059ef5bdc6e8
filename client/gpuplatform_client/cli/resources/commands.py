"""Typer's commands, made of collections of the API."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final

import typer

from gpuplatform_client.cli.amounts import SPAN, seconds_of
from gpuplatform_client.cli.connection import connected, output, reporting
from gpuplatform_client.cli.groups import lists_by_default
from gpuplatform_client.cli.printing import (
    ListFormat,
    ListOption,
    field_text,
    fields_of,
    print_facts,
    print_for_programs,
    print_list,
)
from gpuplatform_client.cli.resources.collections import Act, Collection, Field
from gpuplatform_client.client import Client
from gpuplatform_client.http.api_requests import path_part
from gpuplatform_client.operations.lookups import (
    LookupFailedError,
    find_array,
    find_deployment,
    find_folder,
    find_project,
    find_session,
)

PART: Final = re.compile(r"\{(\w*)\}")
NONE: Final = "none"
ROOT_PANEL: Final = "Sessions"
NAMED: Final = "named"  # the argument that "{}" is: no field is called so
FINDERS: Final[dict[str, Callable[[Client, str], Any]]] = {
    **{"session": find_session, "deployment": find_deployment, "folder": find_folder, "project": find_project},
    "array": find_array,
}
COMMAND: Final = inspect.Parameter.KEYWORD_ONLY


def add_commands(groups: dict[str, typer.Typer], root: typer.Typer, collections: Iterable[Collection]) -> None:
    """Add the commands of collections to their groups, which are made where they are missing."""
    collections = list(collections)
    by_thing = {each.thing: each for each in collections}
    for collection in collections:
        group = _group(groups, root, collection)
        for name, act in collection.commands():
            command = command_of(collection, act, by_thing)
            if name == "ls" and "{" not in collection.path:
                lists_by_default(group, command, act.help)
            else:
                panel = None if collection.group else ROOT_PANEL
                group.command(name, help=act.help, rich_help_panel=panel)(command)


def command_of(collection: Collection, act: Act, by_thing: dict[str, Collection]) -> Callable[..., None]:
    """Return the function of a command; its signature is what Typer makes arguments and options of."""
    path = collection.path_of(act)
    parts = [name or NAMED for name in PART.findall(path)]

    def command(form: ListFormat = ListFormat.TABLE, **given: Any) -> None:
        fields = dict(_sent(act.taken, given))
        if act.method == "PATCH" and not fields and not act.body:
            raise typer.BadParameter("Name what is to change; --help lists the options.")
        several = [given | {parts[-1]: name} for name in given[parts[-1]]] if act.many else [given]
        with connected() as client:
            for filled in [_filled(client, collection, path, each, by_thing) for each in several]:
                _carry_out(client, collection, act, filled, fields, form)

    shown_names = [(part, collection.key if part == NAMED else part) for part in parts]
    arguments = [_argument(*each, many=act.many and each[0] == parts[-1]) for each in shown_names]
    taken = [_parameter(field) for field in act.taken]
    has_output = act.method != "DELETE" and act.shows != "text"
    shown = [inspect.Parameter("form", COMMAND, default=ListFormat.TABLE, annotation=ListOption)] if has_output else []
    command.__signature__ = inspect.Signature([*arguments, *taken, *shown])  # type: ignore[attr-defined]
    return reporting()(command)


def _group(groups: dict[str, typer.Typer], root: typer.Typer, collection: Collection) -> typer.Typer:
    """Return the group of a collection's commands, within others as its words say."""
    if not collection.group:
        return root
    if collection.group not in groups:
        outer, _, name = collection.group.rpartition(" ")
        title = collection.plural[0].upper() + collection.plural[1:]
        groups[collection.group] = typer.Typer(help=f"{title}.", no_args_is_help=True)
        groups[outer].add_typer(groups[collection.group], name=name)
    return groups[collection.group]


def _argument(name: str, shown_name: str, *, many: bool) -> inspect.Parameter:
    kind: Any = list[str] if many else str
    return inspect.Parameter(name, COMMAND, annotation=Annotated[kind, typer.Argument(metavar=shown_name.upper())])


def _parameter(field: Field) -> inspect.Parameter:
    option = field.name.replace("_", "-")
    value: Any = bool if field.kind == "bool" else int if field.kind == "N" and not field.may_be_none else str
    value = typer.FileText if field.is_file else list[value] if field.is_list else value
    metavar = f"{field.kind}|{NONE}" if field.may_be_none or field.is_list else field.kind
    if field.is_argument:
        info = typer.Argument(metavar=field.name.upper())
        return inspect.Parameter(field.name, COMMAND, annotation=Annotated[value, info])
    if field.kind == "bool":
        info = typer.Option(f"--{option}/--no-{option}")
    elif field.is_file:
        info = typer.Option(f"--{option}-file", metavar="FILE", help="-: the input")
    else:
        info = typer.Option(f"--{option}", metavar=metavar)
    return inspect.Parameter(field.name, COMMAND, default=None, annotation=Annotated[value | None, info])


def _sent(fields: Iterable[Field], given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that were given, with what is sent of each. Raises BadParameter."""
    for field in fields:
        value = given.get(field.name)
        if value is None or value == []:
            continue
        if field.is_list:
            yield field.name, [] if value == [NONE] else value
        elif field.is_file:
            yield field.name, _content(value) if field.kind == "FILE" else _json(value)
        elif field.may_be_none and value == NONE:
            yield field.name, None
        elif field.kind == "WHEN":
            yield field.name, _moment(value, f"--{field.name.replace('_', '-')}")
        else:
            yield field.name, value


def _content(file: typer.FileText) -> str:
    """Return the text of a file, without the end of its last line. Raises BadParameter."""
    try:
        return file.read().removesuffix("\n")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file.name} is no text in UTF-8.") from None


def _json(file: typer.FileText) -> Any:
    """Return the value that a file of JSON has. Raises BadParameter."""
    try:
        return json.loads(_content(file))
    except ValueError as error:
        raise typer.BadParameter(f"{file.name} is no JSON: {error}.") from None


def _moment(text: str, option: str) -> str:
    """Return a moment that is given as such, or as a span from now on. Raises BadParameter."""
    try:
        if SPAN.fullmatch(text):
            return (datetime.now(UTC) + timedelta(seconds=seconds_of(text, option))).isoformat()
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise typer.BadParameter("Write 2h, 7d, or 2026-11-01T18:00.", param_hint=option) from None


def _filled(
    client: Client, collection: Collection, path: str, given: dict[str, Any], by_thing: dict[str, Collection]
) -> str:
    """Return the path with the ids of what is named in it. Raises LookupFailedError."""
    done, rest = "", path
    while match := PART.search(rest):
        name = match[1] or NAMED
        before, rest = done + rest[: match.start()], rest[match.end() :]
        of = by_thing.get(name) if match[1] else collection
        if finder := FINDERS.get(match[1] or collection.thing):
            found = finder(client, given[name]).id
        else:
            found = given[name] if of is None else _id_of(client, of, before, given[name])
        done = before + path_part(str(found))
    return done + rest


def _id_of(client: Client, collection: Collection, listed_at: str, name: str) -> Any:
    """Return the id of the object of this name or id. Raises LookupFailedError."""
    if collection.key == "id":
        return name
    query = {"search": name} if collection.searched and not name.isdecimal() else {}
    _, _, own = collection.path.partition("?")
    listed = list(client.listed(f"{listed_at}?{own}" if own else listed_at, **query))
    called = [each["id"] for each in listed if str(each.get(collection.key)).casefold() == name.casefold()]
    found = called or [each["id"] for each in listed if str(each["id"]) == name]
    if len(found) != 1:
        several = f"Several {collection.plural} are called {name!r}: write the id."
        raise LookupFailedError(several if found else f"There is no {collection.thing} {name!r}.")
    return found[0]


def _carry_out(
    client: Client, collection: Collection, act: Act, path: str, fields: dict[str, Any], form: ListFormat
) -> None:
    """Send the request, and print what is to be shown of the response."""
    name_of = partial(field_text, name=act.prints or collection.key)
    is_read = act.method in ("GET", "DELETE")
    query = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    if act.method == "GET" and act.shows == "rows" and not act.of:
        found: Any = client.listed(path, **query)
    else:
        body = {**act.body, **fields}
        found = client.call(act.method, path, None if is_read or not body else body, **(query if is_read else {}))
        found = found.get(act.of) if found and act.of else found
    if found is None or act.method == "DELETE":
        return
    if act.shows == "rows":
        columns, wide = act.columns or collection.columns, "" if act.columns else collection.wide
        print_list(found, form, fields_of(columns), wide=fields_of(wide), name_of=name_of)
    elif act.shows == "text":
        output.out("\n".join(found) if isinstance(found, list) else found, highlight=False)
    elif not print_for_programs(found, form, name_of(found)):
        if act.shows == "facts":
            print_facts((name.replace("_", " "), field_text(found, name)) for name in found)
        else:
            output.print(name_of(found), highlight=False, markup=False)
