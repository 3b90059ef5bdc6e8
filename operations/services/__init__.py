"""Status, start, stop, restart and logs of the platform's services on this machine, whatever runs them.

Used by gpuplatform.
"""
