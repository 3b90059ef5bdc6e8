"""What a host worker does as root on its host: itself where it is root, else through a helper container. No Django.

Used by gpuplatform and operations.
"""
