"""Moves the bytes of uploads and downloads between ASGI connections and files. Pure ASGI: no Django.

Used by gpuplatform.
"""
