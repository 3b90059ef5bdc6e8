"""Celery's periodic tasks of deployments, run on the scheduler's queue."""

from celery import shared_task

from deployments.replicas import reconciliation
from deployments.scaling import autoscaler


@shared_task
def reconcile() -> None:
    """Launch, drain and end replicas as their deployments want; see `deployments.replicas.reconciliation`."""
    reconciliation.reconcile_all()


@shared_task
def scale() -> None:
    """Have each deployment run as many replicas as its load needs; see `deployments.scaling.autoscaler`."""
    autoscaler.look()
