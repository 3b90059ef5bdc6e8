"""Uploads that can be resumed (tus 1.0).

Imported by the addresses and sweeps of folders.
"""
