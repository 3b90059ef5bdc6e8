"""Mails of sign-in, sent in the background: how long a page takes must not tell who has an account."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from smtplib import SMTPException
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage

logger = logging.getLogger(__name__)

_senders: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="mail")


def public_address(path: str) -> str:
    """Return the address of a page for a mail: never made of a request's Host header, which its sender chooses."""
    return settings.COMPUTE_PUBLIC_URL.rstrip("/") + path


def send_soon(message: EmailMessage) -> Future[bool]:
    """Send the message in the background; the result is whether the mail server took it."""
    return _senders.submit(send_now, message)


def send_now(message: EmailMessage) -> bool:
    """Send the message and return whether the mail server took it; a failure is logged, without the text."""
    try:
        return bool(message.send())
    except (SMTPException, OSError, ValueError) as error:
        logger.warning("no e-mail %r to %s: %s", message.subject, ", ".join(message.to), error)
        return False
