"""The program that fetches, run in a container: the standard library of Python 3.9 alone, and git.

Used by webhooks.
"""
