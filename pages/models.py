"""The tables of the pages."""

from pages.launch.models import LaunchDraft
from pages.session_list.models import ListColumns

__all__ = ["LaunchDraft", "ListColumns"]
