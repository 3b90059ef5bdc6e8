"""What every session's programs are told, so that they answer behind the platform."""

import pytest
from django.conf import LazySettings

from hostworker.containers.app_environment import variables


def test_mlflow_knows_the_hosts_and_origins_of_the_apps(settings: LazySettings) -> None:
    settings.COMPUTE_PUBLIC_URL = "https://gpu.example.org"
    settings.COMPUTE_APPS_DOMAIN = "apps.example.net"
    hosts = variables()["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert {"*.apps.example.net", "*.apps.example.net:*", "localhost:*"} <= set(hosts)
    assert "*" not in hosts
    origins = variables()["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"].split(",")
    assert origins == ["https://*.apps.example.net", "https://*.apps.example.net:*"]


@pytest.mark.parametrize("name", ["MLFLOW_WORKERS", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION"])
def test_mlflow_leaves_memory_to_the_session(name: str) -> None:
    assert variables()[name] in ("1", "false")
