"""English texts of the container engine, and of requests to the platform."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # engine/engine.py
    _("The container engine sent an answer that is not understood."),
    _("The %(name)s cannot be reached."),
    _("The %(name)s's address is %(value)s."),
    _("The gateway of the session's host refused the request; its log says why."),
    _("The %(name)s does not answer."),
    _("The %(name)s broke off its answer."),
    _("The %(name)s sent an answer that is not understood: %(error)s."),
    _("The session's container no longer exists."),
    _("The session's container is paused."),
    _("The session's container is not running."),
    _("The container engine refused: %(explanation)s"),
    # engine/shell.py
    _("The %(what)s did not start in time."),
    _("No %(what)s could be started: %(value)s"),
    # gpuplatform/serving/request_bodies.py
    _("The body of the request is too large."),
)
