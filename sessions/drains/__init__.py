"""Drains of hosts: who is told, and what happens at their time.

Imported by the administration and the API.
"""
