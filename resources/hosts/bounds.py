"""Whether the ends of sessions are known, on which reservations and estimates of starts rest; said in the admin."""

from typing import Final

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.models import ResourcePolicy, User
from resources.models import ResourceGroup

MAX_NAMED: Final = 5  # policies


def of_policy(policy: ResourcePolicy) -> str:
    """Return why waiting sessions cannot be told when they start, as far as this policy goes; "" where they can."""
    if policy.max_lifetime is not None:
        return ""
    return _(
        "No lifetime limit: sessions without a time limit of their own may run for ever, so that no start can be "
        "reserved behind them, and those who wait are not told when they start."
    )


def of_group(group: ResourceGroup) -> str:
    """Return why waiting sessions of this group cannot be told when they start; "" where they can."""
    if group.max_lifetime is not None:
        return ""
    users = User.objects.filter(is_active=True, policy__max_lifetime=None)
    if not group.open_to_all:
        users = users.filter(Q(resource_groups=group) | Q(is_superuser=True))
    users = users.distinct()
    if not (count := users.count()):
        return ""
    names = sorted({*users.values_list("policy__name", flat=True)})
    listed = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
    text = ngettext(
        "%(count)s user of this group has a policy without a lifetime limit (%(policies)s): no start can be reserved "
        "behind their sessions.",
        "%(count)s users of this group have a policy without a lifetime limit (%(policies)s): no start can be reserved "
        "behind their sessions.",
        count,
    )
    whole_host = _("Who waits longest gets a whole host to wait for after the reservation delay instead.")
    return f"{text % {'count': count, 'policies': listed}} {whole_host}"
