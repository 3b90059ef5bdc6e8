"""Elastic hosts: what makes them (providers), and which types of them there can be.

Used by scheduler.
"""
