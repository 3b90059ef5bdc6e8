"""The data plane: a reverse proxy for the apps of sessions. Pure asyncio, without Django or Channels."""
