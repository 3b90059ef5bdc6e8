"""What beat sends is known to the worker that receives it. Seen red without a package of `autodiscover_tasks`."""

import subprocess
import sys

UNKNOWN = """
import django
django.setup()
from gpuplatform.celery import app
app.loader.import_default_modules()
print(*sorted({each["task"] for each in app.conf.beat_schedule.values()} - app.tasks.keys()))
"""


def test_the_scheduler_knows_each_periodic_task() -> None:
    # In a process of its own: in this one, other tests have imported more.
    done = subprocess.run([sys.executable, "-c", UNKNOWN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
