"""English texts of accounts and their SSH keys."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # accounts/credentials/public_keys.py
    _("This is a private key, which must stay secret: make a new pair, and paste the file that ends in .pub."),
    _("Paste one public key: one line, such as ssh-ed25519 AAAA... you@laptop."),
    _("This is not a public key in OpenSSH's format, such as ssh-ed25519 AAAA... you@laptop."),
    _("DSA keys are too weak. Make a new pair: ssh-keygen -t ed25519."),
    _("An RSA key of %(bits)s bits is too weak; at least %(least)s are needed. Better: ssh-keygen -t ed25519."),
    # accounts/credentials/ssh_keys.py
    _("You can have at most %(most)s keys; delete one first."),
    _("You have already added this key, as %(title)s."),
    _("Another account has this key."),
    # accounts/signing_in/views.py
    _("The key %(title)s opens your sessions now."),
    _("The key %(title)s is deleted. Its SSH connections are being closed."),
)
