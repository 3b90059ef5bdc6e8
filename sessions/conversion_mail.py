"""The e-mail that tells the owner of a session that it was saved as an image."""

import logging
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import send_mail
from django.template.loader import render_to_string
from django.urls import reverse

from sessions.models import Conversion

logger = logging.getLogger(__name__)


def tell_owner(conversion: Conversion) -> None:
    """Send the full name of the image to the session's owner. A failure is logged: the pages show it all the same."""
    session = conversion.session
    context = {
        "conversion": conversion,
        "session": session,
        "image": conversion.image,
        "address": settings.COMPUTE_PUBLIC_URL.rstrip("/") + reverse("sessions:private-images"),
    }
    text = render_to_string("sessions/mail/converted.txt", context)
    try:
        send_mail(f"Your image {conversion.name}:{conversion.tag} is ready", text, None, [session.owner.email])
    except (SMTPException, OSError, ValueError) as error:
        logger.warning("session %s: could not tell %s about its image: %s", session.pk, session.owner, error)
