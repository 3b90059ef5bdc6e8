"""Whether the parts of an installation are well.

Imported by the addresses, the metrics and the services.
"""
