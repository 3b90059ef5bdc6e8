"""Metrics for Prometheus: of requests, and of the platform's state.

Used by gpuplatform.
"""
