"""Drains of hosts: who is told, and what happens at their time.

Used by gpuplatform, hostworker, pages and scheduler.
"""
