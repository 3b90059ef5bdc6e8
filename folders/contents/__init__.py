"""What a folder contains, as the API lists and changes it.

Imported by the pages, the API and the SFTP server of folders.
"""
