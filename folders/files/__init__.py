"""Files below a folder's directory, reached without ever leaving it. No Django.

Used by deployments, gpuplatform, hostworker, pages and sshserver.
"""
