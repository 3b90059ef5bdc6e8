"""Images of a host: which are there, and how they are pulled, made and converted.

Imported by the agent and the containers' runner.
"""
