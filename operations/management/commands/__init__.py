"""The commands of operators, as `manage.py` runs them.

Imported by Django.
"""
