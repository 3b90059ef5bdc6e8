"""Apps in a container: how they are started, probed and counted as active.

Imported by the containers' runner and the agent.
"""
