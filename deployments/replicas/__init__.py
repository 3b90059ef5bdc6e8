"""Replicas of deployments: how many are launched and ended, by what is wanted and what is found.

Used by endpoints, pages and specs.
"""
