"""Checks of a machine and its services that say what is missing and what to do.

Used by gpuplatform.
"""
