"""Amounts of cores, memory and GPUs: units, fields, and how they are shown.

Imported everywhere; imports no other room of resources but the units.
"""
