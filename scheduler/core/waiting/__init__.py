"""Requests that wait: their queue, their classes, forecasts and explanations.

Used by its package alone.
"""
