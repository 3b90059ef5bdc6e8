"""API tokens, SSH keys and what a credential is valid for.

Used by deployments, folders, gpuplatform, hostaccess, pages, resources, sessions and sshserver.
"""
