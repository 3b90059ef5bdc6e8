"""Requests that wait: their queue, their classes, forecasts and explanations.

Imported by what decides in the core, and by advice.
"""
