"""Which app listens where, and what the app proxy is told of it.

Imported by the control plane and by the services of endpoints.
"""
