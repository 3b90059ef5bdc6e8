"""The supervisor that runs an installation's processes and restarts them.

Used by gpuplatform.
"""
