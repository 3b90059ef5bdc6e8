"""The database backend: Django's for PostgreSQL, which fails at once while the server is known to be silent.

Used by gpuplatform.
"""
