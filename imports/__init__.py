"""Imports: work that lies at an address is fetched into a folder or a session, inside a container of its owner.

Used by gpuplatform, operations and pages.
"""
