"""API tokens, SSH keys and what a credential is valid for.

Imported by the API, the SSH server and the pages that show credentials.
"""
