"""Has what a task of an array logs to MLflow come out as metrics, whatever its tracking store: no line of it changes.

The entry script of its container puts a plugin of MLflow's on Python's path, behind what is there: a provider of the
context of runs (https://mlflow.org/docs/latest/ml/plugins/), which MLflow asks as a run begins. It adds nothing to the
run; as the process ends, it writes the last values of the run to the container's output, as `arrays/metrics.py` reads
them. Numbers among the run's parameters, but for those of the task, follow as `params.NAME`.
"""

from typing import Final

FOLDER: Final = "/tmp/.gpuplatform-mlflow"  # noqa: S108  # in the container, of its own user alone
PLUGIN: Final = """\
import atexit
import json
import os


class Provider:
    def __init__(self):
        self.is_asked = False

    def in_context(self):
        if not self.is_asked:
            self.is_asked = True
            atexit.register(report)
        return False

    def tags(self):
        return {}


def report():
    try:
        import mlflow

        os.environ.update(MLFLOW_HTTP_REQUEST_MAX_RETRIES="1", MLFLOW_HTTP_REQUEST_TIMEOUT="10")  # it ends
        run = mlflow.last_active_run()
        if run is None:
            return
        data = mlflow.get_run(run.info.run_id).data
        values = list(data.metrics.items())
        for name, value in data.params.items():
            try:
                values += [] if name in os.environ else [(f"params.{name}", float(value))]
            except ValueError:
                continue
        lines = [f"GP_METRICS {json.dumps(dict(values[at : at + 10]))}" for at in range(0, min(len(values), 50), 10)]
    except Exception as error:
        lines = [f"The metrics of MLflow could not be read: {type(error).__name__}"]
    text = "".join(f"{line}\\n" for line in lines)
    try:
        with open("/proc/1/fd/1", "w") as output:  # of the container, wherever the program's own goes
            output.write(text)
    except OSError:
        print(text, end="", flush=True)
"""
ENTRY_POINT: Final = "[mlflow.run_context_provider]\ngpuplatform = gpuplatform_mlflow:Provider\n"
METADATA: Final = "Metadata-Version: 2.1\nName: gpuplatform-mlflow\nVersion: 1\n"
PREPARE: Final = f"""\
if [ $# -gt 0 ] && [ "$GP_ARRAY_ID" ] && mkdir -p {FOLDER}/gpuplatform_mlflow-1.dist-info; then
    cat >{FOLDER}/gpuplatform_mlflow.py <<'END_OF_FILE'
{PLUGIN}END_OF_FILE
    cat >{FOLDER}/gpuplatform_mlflow-1.dist-info/entry_points.txt <<'END_OF_FILE'
{ENTRY_POINT}END_OF_FILE
    cat >{FOLDER}/gpuplatform_mlflow-1.dist-info/METADATA <<'END_OF_FILE'
{METADATA}END_OF_FILE
    export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{FOLDER}"
fi 2>/dev/null"""
