"""The program that fetches, run in a container: the standard library of Python 3.9 alone, and git.

Used by imports, which sends it into the container, and by webhooks for its rule of public addresses.
"""
