"""Configuration of the administration."""

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig

from gpuplatform.administration.short_filters import ShortRelatedFilter
from translation import model_texts


class Administration(AdminConfig):
    """Django's administration with the platform's own site."""

    default_site = "gpuplatform.administration.site.AdministrationSite"

    def ready(self) -> None:
        """Find the administration of all models, have its filters be short, and its texts translated."""
        super().ready()
        admin.FieldListFilter.register(lambda field: field.remote_field, ShortRelatedFilter, take_priority=True)
        model_texts.install(apps.get_app_configs(), admin.site)
