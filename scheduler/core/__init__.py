"""Scheduling core: types, queue order, host capacity, placement, backfill and forecast. No Django, no clock.

Used by its package alone.
"""
