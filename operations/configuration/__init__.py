"""The configuration of an installation as a file: export, import, and their API and page.

Imported by the commands and addresses.
"""
