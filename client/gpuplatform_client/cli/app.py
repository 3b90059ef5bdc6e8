"""The program `gpuplatform` and its commands."""

import typer

from gpuplatform_client.cli import access, attach, execute, folders, login, projects, resize, run, sessions

app = typer.Typer(
    help="GPU Platform from the command line.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(login.login)
app.command()(login.logout)
app.command()(login.whoami)
app.command()(run.run)
app.command("ls")(sessions.list_sessions)
app.command()(sessions.logs)
app.command()(sessions.stop)
app.command()(resize.resize)
app.command()(sessions.top)
app.command(context_settings=access.PASSED_ON)(access.ssh)
app.command()(attach.attach)
app.command("exec", context_settings=access.PASSED_ON)(execute.execute)
app.command("cp")(access.copy)
app.command("port-forward")(access.port_forward)
app.add_typer(folders.app, name="folders")
app.add_typer(projects.app, name="projects")


def main() -> None:
    """Run the command line."""
    app()
