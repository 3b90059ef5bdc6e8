"""What sessions use of a host's GPUs: readings, records, the arbiter's watch and violations.

Used by its package alone.
"""
