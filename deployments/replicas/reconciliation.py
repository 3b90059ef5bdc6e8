"""Brings the replicas of deployments to what is wanted of them. Every few seconds, and after changes."""


def reconcile_all() -> None:
    """Reconcile all deployments that are not as wanted."""
