"""Elastic hosts: what makes them (providers), and the rules and states of the pools they come from.

Used by its package alone.
"""
