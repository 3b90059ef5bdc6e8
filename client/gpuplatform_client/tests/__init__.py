"""Tests of the client against a live server."""
