"""Django configuration of the API's common parts."""

from django.apps import AppConfig


class RestApiConfig(AppConfig):
    """What all of the API has in common."""

    name = "restapi"
    verbose_name = "API"
