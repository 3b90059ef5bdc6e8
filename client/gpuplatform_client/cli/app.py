"""The program `gpuplatform` and its commands."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from gpuplatform_client.cli import (
    access,
    credentials,
    editors,
    folders,
    importing,
    login,
    overview,
    projects,
    shell,
    spec_files,
    sync,
    templates,
)
from gpuplatform_client.cli.deployments import deploy, deployments
from gpuplatform_client.cli.sessions import attach, changes, execute, resize, run, sessions

app = typer.Typer(
    help="GPU Platform from the command line.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS: Final[Mapping[str, Mapping[str, Callable[..., Any]]]] = {
    "Account": {
        "login": login.login,
        "logout": login.logout,
        "whoami": login.whoami,
        "limits": overview.limits,
        "usage": overview.usage,
    },
    "Sessions": {
        "run": run.run,
        "import": importing.import_work,
        "ls": sessions.list_sessions,
        "logs": sessions.logs,
        "events": sessions.events,
        "wait": sessions.wait,
        "top": sessions.top,
        "stop": changes.stop,
        "park": changes.park,
        "resume": changes.resume,
        "extend": changes.extend,
        "snooze": changes.snooze,
        "resize": resize.resize,
        "rename": changes.rename,
        "convert": changes.convert,
        "export": spec_files.export,
    },
    "In a session": {
        "ssh": access.ssh,
        "ssh-config": editors.ssh_config,
        "code": editors.code,
        "attach": attach.attach,
        "exec": execute.execute,
        "cp": access.copy,
        "sync": sync.sync,
        "port-forward": access.port_forward,
        "apps": overview.apps,
        "open": overview.open_app,
    },
    "Deployments": {"deploy": deploy.deploy, "rollout": deploy.rollout},
    "This program": {"completion": shell.completion},
    "What there is": {"images": overview.images, "hosts": overview.hosts},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        settings = access.PASSED_ON if name in ("ssh", "exec") else None
        app.command(name, rich_help_panel=panel, context_settings=settings)(command)
app.add_typer(deployments.app, name="deployments", rich_help_panel="Deployments")
app.add_typer(templates.app, name="templates", rich_help_panel="Sessions")
app.add_typer(credentials.app, name="credentials", rich_help_panel="Account")
app.add_typer(folders.app, name="folders", rich_help_panel="What there is")
app.add_typer(projects.app, name="projects", rich_help_panel="What there is")


def main() -> None:
    """Run the command line."""
    app(prog_name="gpuplatform")  # however it was started, such as by `python -m`
