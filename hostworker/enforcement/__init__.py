"""Holds containers to their shares of GPUs: files prepared before the start, checked after it. No Django.

Used by operations.
"""
