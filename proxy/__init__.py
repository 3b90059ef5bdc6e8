"""Bytes between a browser and a container. Pure asyncio: no Django, no Channels."""
