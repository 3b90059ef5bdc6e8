"""What programs in sessions find in their environment, so that they answer behind the platform."""

from urllib.parse import urlsplit

from django.conf import settings


def variables() -> dict[str, str]:
    """Return the environment variables that every session gets; what users set wins.

    MLflow from 3.5 on answers only to hosts and origins that it knows, also where a user types `mlflow ui`. One worker
    and no job runners save it over a gigabyte of the session's memory.
    """
    site = urlsplit(settings.COMPUTE_PUBLIC_URL)
    apps = f"*.{settings.COMPUTE_APPS_DOMAIN}"
    hosts = [apps, f"{apps}:*", "localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*"]
    return {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"{site.scheme}://{apps},{site.scheme}://{apps}:*",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_WORKERS": "1",
    }
