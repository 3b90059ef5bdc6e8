"""Cells of the CSV files that pages offer. Pure."""


def inert(value: object) -> object:
    """Return text that a spreadsheet does not run as a formula; what is no text stays."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
