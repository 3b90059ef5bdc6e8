"""English texts of webhooks: which URLs are refused, what came of attempts, and why one was disabled."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # webhooks/destinations.py
    _("This is not a URL."),
    _("Write a URL that begins with https://."),
    _("Write a URL of ASCII characters without spaces; encode others."),
    _("The URL may have no user name or password; check the signature instead."),
    _("The platform sends nothing to this address."),
    # webhooks/delivery/sender.py
    _("It took longer than %(count)s seconds."),
    _("The platform sends nothing to the addresses of this host."),
    _("No connection: %(error)s"),
    _("No HTTP response: %(error)s"),
    _("The platform failed to send it: %(error)s"),
    # webhooks/delivery/stored_secrets.py
    _("The secret was stored under another SECRET_KEY. Rotate it, or have the old key put into SECRET_KEY_FALLBACKS."),
    # webhooks/delivery/deliveries.py
    _("Its receiver responded %(status)s."),
    _("Its receiver responded 410 Gone."),
    # webhooks/admin.py
    _("An administrator disabled it."),
)
