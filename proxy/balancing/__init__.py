"""Services: the choice of a replica for each request, the line of those that wait, rates, and what was served.

Used by its package alone.
"""
