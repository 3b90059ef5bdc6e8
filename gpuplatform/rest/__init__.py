"""The conventions of the REST API: parsing, pages, errors and examples in its schema.

Used by its package alone.
"""
