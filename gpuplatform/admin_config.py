"""Configuration of the administration."""

from django.contrib.admin.apps import AdminConfig


class Administration(AdminConfig):
    """Django's administration with the platform's own site."""

    default_site = "gpuplatform.administration.AdministrationSite"
