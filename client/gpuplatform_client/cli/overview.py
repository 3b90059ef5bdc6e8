"""Commands that show what there is for a user: images, hosts, apps of a session, limits, use."""

import webbrowser
from typing import Annotated, Final

import typer

from gpuplatform_client.cli.amounts import fgpu_text, size_text
from gpuplatform_client.cli.connection import connected, messages, output, reporting, table_of
from gpuplatform_client.cli.names import SessionName
from gpuplatform_client.cli.printing import ListFormat, ListOption, fields_of, print_for_programs, print_list
from gpuplatform_client.models.platform import HostInfo, LimitAmounts
from gpuplatform_client.operations.lookups import find_running_session, find_session

UNLIMITED: Final = "-"
AMOUNTS: Final = (
    *(("CPU", "cpu"), ("Memory", "memory"), ("fGPU", "fgpu")),
    *(("Sessions", "sessions"), ("Waiting", "pending")),
)


@reporting()
def images(form: ListOption = ListFormat.TABLE) -> None:
    """List the images that you may launch."""
    with connected() as client:
        print_list(
            client.images(),
            form,
            fields_of("environment version reference size private"),
            wide=fields_of("min_cpu min_memory min_fgpu"),
            name_of=lambda image: image.reference,
        )


@reporting()
def hosts(form: ListOption = ListFormat.TABLE) -> None:
    """List the hosts of your resource groups, and what sessions hold there."""
    with connected() as client:
        print_list(
            client.hosts(),
            form,
            (
                ("NAME", lambda host: host.name),
                ("STATUS", lambda host: "CORDONED" if host.is_cordoned else host.status),
                ("GROUP", lambda host: host.resource_group),
                ("CPU", lambda host: f"{host.cpu_held_milli / 1000:g}/{host.cpu}"),
                ("MEMORY", lambda host: f"{size_text(host.memory_held)}/{size_text(host.memory)}"),
                ("FGPU", _fgpu_of),
            ),
            wide=(
                ("GPUS", lambda host: ", ".join(gpu.name for gpu in host.gpus)),
                ("DETAIL", lambda host: host.cordon_reason),
            ),
            name_of=lambda host: host.name,
        )


def _fgpu_of(host: HostInfo) -> str:
    held, capacity = (sum(getattr(gpu, name) for gpu in host.gpus) for name in ("held", "capacity"))
    return f"{held:f}/{capacity:f}" if host.gpus else "-"


@reporting()
def apps(name: SessionName, form: ListOption = ListFormat.TABLE) -> None:
    """List the apps that a session offers, and the ports that were opened."""
    with connected() as client:
        print_list(
            client.apps(find_session(client, name).id),
            form,
            fields_of("name title state url"),
            wide=fields_of("detail"),
            name_of=lambda app: app.name,
        )


@reporting()
def open_app(
    name: SessionName,
    app: Annotated[str, typer.Argument(help="Name of an app, or a port")],
    browser: Annotated[bool, typer.Option(help="Open it in a browser")] = True,
) -> None:
    """Open an app of a session, or a port, in a browser; print its address."""
    with connected() as client:
        opened = client.open_app(find_running_session(client, name).id, f"p{app}" if app.isdecimal() else app)
        if opened.detail:
            messages.print(opened.detail, highlight=False, markup=False)
        output.print(opened.url or "", highlight=False, markup=False)
        if browser and opened.url:
            webbrowser.open(opened.url)


@reporting()
def limits(
    project: Annotated[str | None, typer.Option(help="Its policy counts, too")] = None,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """Show what your policy allows, what your sessions hold, and what is left."""
    with connected() as client:
        found = client.limits(**({"project": project} if project else {}))
    if print_for_programs(found, form, project or ""):
        return
    table = table_of("", "ALLOWED", "USED", "LEFT")
    shown = (found.limits, found.used, found.remaining)
    for title, field in AMOUNTS:
        table.add_row(title, *(_amount_text(amounts, field) for amounts in shown))
    output.print(table, markup=False)


def _amount_text(amounts: LimitAmounts, field: str) -> str:
    amount = getattr(amounts, field)
    if amount is None:
        return UNLIMITED
    if field == "memory":
        return size_text(amount)
    return fgpu_text(amount) if field == "fgpu" else str(amount)


@reporting()
def usage(
    by: Annotated[
        str, typer.Option(help="What a row stands for: user, project, group or kind (of accelerators)")
    ] = "user",
    since: Annotated[str | None, typer.Option(help="First day, such as 2026-11-01; by default 30 days ago")] = None,
    until: Annotated[str | None, typer.Option(help="Last day; by default today")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --output json")] = False,
    form: ListOption = ListFormat.TABLE,
) -> None:
    """Show what sessions have used, in hours of GPUs, cores and GiB of memory."""
    query = {"by": by, "since": since, "until": until}
    with connected() as client:
        report = client.usage_report(**{name: value for name, value in query.items() if value})
    names = "\n".join(row.name or "-" for row in report.rows)
    if print_for_programs(report, ListFormat.JSON if as_json else form, names):
        return
    is_weighted = report.total.weighted_gpu_hours not in (None, report.total.gpu_hours)
    weighted = ["WEIGHTED"] if is_weighted else []
    table = table_of(by.upper(), "SESSIONS", "GPU HOURS", *weighted, "CPU HOURS", "GIB HOURS", "WAITED")
    for name, count, used in [
        *((row.name or "-", row.sessions, row.used) for row in report.rows),
        ("all", report.sessions, report.total),
    ]:
        gpus = (used.gpu_hours, used.weighted_gpu_hours or 0.0) if is_weighted else (used.gpu_hours,)
        hours = (*gpus, used.cpu_hours, used.memory_gib_hours, used.waiting_hours)
        table.add_row(name, str(count), *(f"{each:.1f}" for each in hours))
    output.print(table, markup=False)
