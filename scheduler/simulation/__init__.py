"""Replay of recorded and synthetic workloads on the scheduling core. No Django.

Used by its package alone.
"""
