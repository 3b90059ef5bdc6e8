"""The wiring of the platform: settings, URLs, ASGI, Celery, and the commands that set up and run it all."""

import atexit
import gc

gc.set_threshold(50_000, 20, 20)  # Python's own let it look through all that was imported for a tenth of a start

from gpuplatform.celery import app as celery_app  # noqa: E402

__all__ = ["celery_app"]

# Python's end otherwise looks for cycles in all that was imported, for half a second of processor time in each process.
atexit.register(gc.freeze)
