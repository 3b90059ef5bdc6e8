"""The list of sessions, with the resource bars."""
