"""Commands on deployments."""
