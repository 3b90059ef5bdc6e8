"""Which app listens where, and what the app proxy is told of it.

Used by gpuplatform.
"""
