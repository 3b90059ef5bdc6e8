"""Deployments: programs served at one address by replicas, which are sessions of their own kind."""
