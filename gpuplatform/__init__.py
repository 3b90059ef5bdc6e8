"""The wiring of the platform: settings, URLs, ASGI, Celery, and the commands that set up and run it all."""

from gpuplatform.celery import app as celery_app

__all__ = ["celery_app"]
