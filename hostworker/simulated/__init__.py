"""Many hosts without containers in one process, for demonstrations, what-if and load: `manage.py simulatedhosts`.

Used by its package alone.
"""
