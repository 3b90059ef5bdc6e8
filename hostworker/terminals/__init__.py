"""Messages to the terminals of a session, and its SSH keys.

Imported by the agent and the containers' runner.
"""
