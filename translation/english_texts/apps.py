"""English texts of apps: their opening, ports, links and failures."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # endpoints/handoff/views.py
    _("The app behind this link does not run at present."),
    _("This address is incomplete. Open the app from its session again."),
    _("This link is wrong, has expired, or was withdrawn."),
    # endpoints/launcher/forms.py
    _("Write a port between 1024 and 65535."),
    _("Choose an app."),
    # endpoints/launcher/views.py
    _("Looking whether it still runs …"),
    # endpoints/routing/ports.py
    _("Port %(port)s is taken; it has port %(chosen)s instead."),
    _("Port %(port)s is not one of %(pool)s; it has port %(chosen)s instead."),
    _(
        "All ports for apps are taken. Close an app that you do not need any more, or ask an administrator for more ports."
    ),
    _("This platform gives apps no ports of their own; it is reached by its address alone."),
    _("All ports for apps are taken; it is reached by its address alone."),
    # endpoints/routing/routes.py
    _("The session does not run."),
    _("The address of the session's container is not known yet."),
    _("Its container's address %(address)s is in none of the networks of COMPUTE_SESSION_SUBNETS."),
    # endpoints/services.py
    _("Opened."),
    _("Made public"),
    _("Closed"),
    _("Shared until %(until)s UTC: %(link)s"),
    _("Share link revoked: %(link)s"),
    _("Share link over: %(link)s"),
    _("Apps can be opened in running sessions only."),
    _("Choose a time that is still to come."),
    _("Made public until %(until)s UTC"),
    _("No longer public"),
    _("No longer public: its time is over"),
    _("A link lasts at most %(days)s days."),
    _("Write at most %(most)s characters."),
    _("Used by a superadmin"),
    _("This image offers %(names)s"),
    _("This image offers no apps"),
    _("%(offered)s; a port between %(first)s and %(last)s is opened as p8080."),
    _("Open the app in a running session first."),
    _("Your policy does not allow to open apps to people without an account."),
    _("At most %(most)s apps and ports of a session can be open; close some."),
    _("At most %(most)s apps and ports of your sessions can be open; close some."),
    # hostworker/app_processes/starter.py
    _("%(title)s ended before it answered."),
    _("%(title)s ended with exit code %(code)s before it answered."),
    _("What listens on port %(port)s does not speak HTTP, or does not answer yet."),
    _("Nothing listens on port %(port)s yet. Start it in the terminal, listening on 0.0.0.0."),
    _(
        "What listens on port %(port)s does so on 127.0.0.1, where only the session itself reaches it. Start it anew listening on 0.0.0.0: most programs take --host 0.0.0.0."
    ),
    _("What listens there has not answered on port %(port)s for %(seconds)s s."),
    _("%(title)s runs, but has not answered on port %(port)s for %(seconds)s s."),
    _("%(title)s ended, perhaps for want of memory before it answered."),
    _("%(title)s ended with exit code %(code)s, perhaps for want of memory before it answered."),
    # images/catalog.toml: hints on apps
    _("One notebook at a time"),
    _("Notebooks and files side by side"),
    _("Editor and debugger; best with 1 GiB or more"),
    _("Reads what is logged below ~/logs"),
    _("Runs of scripts that were started at home"),
)
