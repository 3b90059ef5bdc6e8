"""The mail by which the owner of an account that somebody else has made chooses its first password."""

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str

from accounts.models import User


def send(user: User, *, by: User) -> None:
    """Mail a link that is good for a day and once, in the background; later *Forgotten password?* sends another."""
    adapter = get_adapter()
    key = f"{user_pk_to_url_str(user)}-{default_token_generator.make_token(user)}"
    context = {"user": user, "by": by.get_full_name() or by.email, "link": adapter.get_reset_password_from_key_url(key)}
    adapter.send_mail("account/email/welcome", user.email, context)
