"""Files below a folder's directory, reached without ever leaving it. No Django.

Used by gpuplatform, hostworker and sshserver.
"""
