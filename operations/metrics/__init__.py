"""Metrics for Prometheus: of requests, and of the platform's state.

Imported by the addresses and the middleware.
"""
