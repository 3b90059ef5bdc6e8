"""What a program logs to MLflow becomes metrics of its task: real containers with a real MLflow."""

from typing import Final

import docker
import pytest

from arrays import metrics
from hostworker.runtime.container_config import ENTRY_SCRIPT
from tests.images import ensure_images

pytestmark = pytest.mark.docker
IMAGE: Final = "gpuplatform/scikit-learn:1.7"
COMMAND: Final = """
cat >/tmp/train.py <<'END'
import mlflow
mlflow.set_tracking_uri("sqlite:////tmp/mlflow.db")
mlflow.start_run()
mlflow.log_params({"lr": 0.1, "depth": 3, "optimizer": "sgd"})
for step in range(3):
    mlflow.log_metric("val/loss", 1 / (step + 1), step=step)
mlflow.log_metric("diverged", float("nan"))
raise SystemExit(3)
END
cd /tmp && PYTHONPATH=$PYTHONPATH python train.py >/dev/null 2>&1
"""


def output_of(**variables: str) -> tuple[int, str]:
    """Return the exit code and output of the command in a container of its own."""
    client = docker.from_env()
    entry = ["/bin/sh", "-c", ENTRY_SCRIPT, "test", COMMAND]
    container = client.containers.run(
        IMAGE, entrypoint=entry, init=True, environment=variables, detach=True, network_mode="none"
    )
    try:
        return container.wait()["StatusCode"], container.logs().decode()
    finally:
        container.remove(force=True)
        client.close()


def test_what_mlflow_logs_becomes_metrics_of_the_task() -> None:
    ensure_images(["scikit-learn 1.7"])
    code, output = output_of(GP_ARRAY_ID="a", lr="0.1")
    assert code == 3
    assert metrics.read(output) == {"val/loss": pytest.approx(1 / 3), "params.depth": 3}


def test_other_sessions_are_left_as_they_are() -> None:
    assert output_of() == (3, "")
