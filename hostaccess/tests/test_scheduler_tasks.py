"""What a host may have the scheduler do: its tasks take no arguments, and those of hosts are not among them."""

import subprocess
import sys

REGISTERED = """
import inspect
import django
django.setup()
from gpuplatform.celery import app
app.loader.import_default_modules()
for name, task in sorted(app.tasks.items()):
    if not name.startswith("celery."):
        print(name, len(inspect.signature(task.run).parameters))
"""


def test_the_scheduler_knows_tasks_without_arguments_alone() -> None:
    run = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True)
    found = dict(line.split() for line in run.stdout.splitlines())
    assert "scheduler.tasks.run_pass" in found
    assert set(found.values()) == {"0"}
    assert not [name for name in found if name.startswith("hostworker")]
