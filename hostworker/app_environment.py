"""What programs in sessions find in their environment, so that they answer behind the platform."""

from django.conf import settings

from proxy.site import Site


def variables() -> dict[str, str]:
    """Return the environment variables that every session gets; what users set wins.

    MLflow from 3.5 on answers only to hosts and origins that it knows, also where a user types `mlflow ui`. One worker
    and no job runners save it over a gigabyte of the session's memory.
    """
    names = Site(platform_url=settings.COMPUTE_PUBLIC_URL, apps_domain=settings.COMPUTE_APPS_DOMAIN)
    apps = names.host_name if names.is_by_port else f"*.{names.apps_domain}"
    hosts = [apps, f"{apps}:*", "localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*"]
    return {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"{names.scheme}://{apps},{names.scheme}://{apps}:*",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_WORKERS": "1",
    }
