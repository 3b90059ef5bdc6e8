"""Django configuration of the deployments app."""

from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    """Deployments: revisions, replicas, their health, and tokens for their addresses."""

    name = "deployments"
