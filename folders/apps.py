"""Django configuration of the folders app."""

from django.apps import AppConfig


class FoldersConfig(AppConfig):
    """Data folders: storage roots, folders, shares and transfers."""

    name = "folders"
    verbose_name = "Data folders"
