"""Django configuration of the pages app."""

from django.apps import AppConfig


class PagesConfig(AppConfig):
    """The server-rendered pages that draw on several packages."""

    name = "pages"
