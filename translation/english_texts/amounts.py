"""English texts of amounts, lengths of time and states, which other texts have in them."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # amounts and lists
    _("%(count)s CPU core"),
    _("%(count)s CPU cores"),
    _("%(count)s core"),
    _("%(count)s cores"),
    _("%(days)s d %(hours)s h %(minutes)s min"),
    _("%(days)s d %(hours)s h"),
    _("%(days)s d %(minutes)s min"),
    _("%(hours)s h %(minutes)s min"),
    _("%(count)s minute"),
    _("%(count)s minutes"),
    _("%(count)s hour"),
    _("%(count)s hours"),
    _("%(count)s GPU"),
    _("%(count)s GPUs"),
    _("1 whole GPU"),
    _("%(count)s whole GPUs"),
    _("an hour"),
    _("a day"),
    _("a week"),
    _("30 days"),
    _("%(seconds)s s"),
    _("%(amount)s of memory"),
    # states of apps, images and conversions
    _("starting"),
    _("ready"),
    _("failed"),
    _("closed"),
    _("queued"),
    _("building"),
    _("waiting for the host"),
    _("pulling"),
    _("done"),
    _("saving what changed"),
    _("pushing to the registry"),
)
