"""API by which superadmins administer: rows are validated by the administration's forms, acts are in its audit log.

Used by folders, gpuplatform, operations and sessions.
"""
