"""Downloads of files and archives by the API.

Imported by the addresses of folders.
"""
