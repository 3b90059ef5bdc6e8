"""What the launch wizard says of clusters."""

from collections.abc import Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from sessions.models import ClusterMode

MODE_WORDS: Final[Mapping[ClusterMode, str | Promise]] = {
    ClusterMode.ANY: _("on as few hosts as possible"),
    ClusterMode.SINGLE_HOST: _("all on one host"),
    ClusterMode.SPREAD: _("each on a host of its own"),
}
