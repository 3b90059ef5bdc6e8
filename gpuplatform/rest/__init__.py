"""The conventions of the REST API: parsing, pages, errors and examples in its schema.

Named by the settings; imported by nothing else.
"""
