"""PostgreSQL and Redis as processes of the installation itself.

Used by gpuplatform.
"""
