"""Asyncio client of the container engine: exec, streams, logs and the engine gateway. No Django models."""
