"""Byte ranges and archives of files. Knows no Django.

Imported by the responses of folders.
"""
