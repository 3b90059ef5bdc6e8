"""Session images: the catalogue, and what builds and registers it. Runs nothing; sessions do.

Used by gpuplatform, hostworker, imports, operations, pages and sessions.
"""
