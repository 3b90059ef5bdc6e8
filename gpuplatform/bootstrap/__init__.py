"""Sets the platform up from nothing: services, Docker Engine, front-end packages, demo data. No Django at import.

Used by its package alone.
"""
