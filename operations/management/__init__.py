"""The commands of operators.

Imported by Django.
"""
