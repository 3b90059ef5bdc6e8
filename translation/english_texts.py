"""The English texts that are stored in the database, or that modules without Django compose.

A placeholder stands for what the writer fills in. A test finds sentences of the writers that are missing here.
"""

from typing import Final

from django.utils.translation import gettext_noop as _

ENGLISH_TEXTS: Final = (
    # amounts (resources.units)
    _("%(count)s CPU core"),
)
