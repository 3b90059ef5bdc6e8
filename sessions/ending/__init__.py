"""Ends that wait for some seconds, so that they can be undone.

Used by pages.
"""
