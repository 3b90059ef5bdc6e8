"""The tables of the pages."""

from pages.session_list.models import ListColumns

__all__ = ["ListColumns"]
