"""Celery's periodic task of deployments, run on the scheduler's queue."""

from celery import shared_task

from deployments.replicas import reconciliation


@shared_task
def reconcile() -> None:
    """Launch, drain and end replicas as their deployments want; see `deployments.replicas.reconciliation`."""
    reconciliation.reconcile_all()
