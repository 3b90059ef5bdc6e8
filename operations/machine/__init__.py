"""The machine on which an installation is set up: packages, engine, addresses, locks.

Used by gpuplatform.
"""
