"""The wiring of the platform: settings, URLs, ASGI, Celery, and the commands that set up and run it all."""

import atexit
import gc

from gpuplatform.celery import app as celery_app

__all__ = ["celery_app"]

# Python's end otherwise looks for cycles in all that was imported, for half a second of processor time in each process.
atexit.register(gc.freeze)
