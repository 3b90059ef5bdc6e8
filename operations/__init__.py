"""What an operator does with a running installation: configuration, services, health, backup.

Imported by gpuplatform alone; it imports every package of the product.
"""
