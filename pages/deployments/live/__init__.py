"""The socket of a deployment's page, over which it hears that it is to be fetched again.

Used by gpuplatform.
"""
