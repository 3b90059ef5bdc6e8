"""What programs in sessions find in their environment: how many threads to use, how to answer behind the platform."""

from typing import Final

from django.conf import settings

from proxy.site import Site

THREAD_COUNTS: Final = (
    "OMP_NUM_THREADS",  # OpenMP, and what asks it: PyTorch, scikit-learn, nproc
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "JULIA_NUM_THREADS",
    "GOMAXPROCS",
)


def thread_counts(cores: int) -> dict[str, str]:
    """Return the variables by which libraries start as many threads as the session has cores; what users set wins."""
    return dict.fromkeys(THREAD_COUNTS, str(cores))


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
