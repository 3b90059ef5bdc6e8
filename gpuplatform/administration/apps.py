"""Configuration of the administration."""

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig

from translation import model_texts


class Administration(AdminConfig):
    """Django's administration with the platform's own site."""

    default_site = "gpuplatform.administration.site.AdministrationSite"

    def ready(self) -> None:
        """Find the administration of all models, and have its texts translated."""
        super().ready()
        model_texts.install(apps.get_app_configs(), admin.site)
