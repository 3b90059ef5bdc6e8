"""Folders with their owners, and who may use them in which way.

Used by deployments, imports, specs and sshserver.
"""
