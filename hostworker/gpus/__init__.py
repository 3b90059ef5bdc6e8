"""What sessions use of a host's GPUs: readings, records, the arbiter's watch and violations.

Imported by the agent.
"""
