"""Whether the parts of an installation are well.

Used by gpuplatform.
"""
