"""Byte ranges and archives of files. Knows no Django.

Used by its package alone.
"""
