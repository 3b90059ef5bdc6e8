"""Hosts that are made when sessions wait and given back when idle: which are needed, and what becomes of each.

Used by its package alone.
"""
