"""The program `gpuplatform` and its commands."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from gpuplatform_client.cli import help_topics, importing, overview, shell, spec_files, templates
from gpuplatform_client.cli.access import editors, folders, ssh, sync
from gpuplatform_client.cli.account import account, credentials, login, projects
from gpuplatform_client.cli.deployments import deploy, deployments
from gpuplatform_client.cli.groups import lists_by_default
from gpuplatform_client.cli.resources import administration, table
from gpuplatform_client.cli.resources.commands import add_commands
from gpuplatform_client.cli.sessions import arrays, attach, changes, execute, resize, run, sessions

app = typer.Typer(
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
        "requeue": changes.requeue,
        "extend": changes.extend,
        "snooze": changes.snooze,
        "resize": resize.resize,
        "rename": changes.rename,
        "convert": changes.convert,
        "export": spec_files.export,
    },
    "In a session": {
        "ssh": ssh.ssh,
        "ssh-config": editors.ssh_config,
        "code": editors.code,
        "attach": attach.attach,
        "exec": execute.execute,
        "cp": ssh.copy,
        "sync": sync.sync,
        "port-forward": ssh.port_forward,
        "apps": overview.apps,
        "open": overview.open_app,
    },
    "Deployments": {"deploy": deploy.deploy, "rollout": deploy.rollout},
    "This program": {"completion": shell.completion},
}
GROUPS: Final[Mapping[str, Mapping[str, str | typer.Typer]]] = {
    "Account": {
        "account": "Your account: show it, change your name or password.",
        "tokens": "Your API tokens.",
        "keys": "Your SSH keys.",
        "credentials": credentials.app,
        "logins": "Browsers in which you are signed in.",
        "notifications": "What you were told, and how you are told.",
        "webhooks": "Addresses that are told of your sessions.",
    },
    "Sessions": {"arrays": arrays.app, "templates": templates.app},
    "In a session": {"links": "Links by which others use an app."},
    "Deployments": {"deployments": deployments.app},
    "What there is": {
        "images": "Images that you may launch, and your own.",
        "hosts": "Hosts and what is free there; administrators cordon and drain them.",
        "groups": "Resource groups in which you may launch.",
        "presets": "Amounts that are offered.",
        "storage": "Where folders may be.",
        "folders": folders.app,
        "imports": "Work that was fetched from an address.",
        "projects": projects.app,
        "announcements": "What administrators tell everybody.",
    },
    "Administration": {"admin": "For superadmins: users, policies, groups, images, services, and others."},
}


@app.callback()
def program(version: shell.VersionOption = False) -> None:
    """GPU Platform from the command line."""


for panel, commands in PANELS.items():
    for name, command in commands.items():
        settings = ssh.PASSED_ON if name in ("ssh", "exec") else None
        app.command(name, rich_help_panel=panel, context_settings=settings)(command)
groups: dict[str, typer.Typer] = {}
for panel, described in GROUPS.items():
    for name, group in described.items():
        groups[name] = typer.Typer(help=group, no_args_is_help=True) if isinstance(group, str) else group
        app.add_typer(groups[name], name=name, rich_help_panel=panel)
app.command("help")(help_topics.show_help)
lists_by_default(groups["images"], overview.images)
lists_by_default(groups["hosts"], overview.hosts)
groups["account"].command("password")(account.change_password)
groups["notifications"].command("prefer")(account.prefer)
add_commands(groups, app, (*table.COLLECTIONS, *administration.COLLECTIONS))


def main() -> None:
    """Run the command line."""
    app(prog_name="gpuplatform")  # however it was started, such as by `python -m`
