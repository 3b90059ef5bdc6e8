"""Connections to apps, pooled.

Imported by the listener.
"""
