"""What drives the containers of a host, behind one protocol.

Used by gpuplatform and operations.
"""
