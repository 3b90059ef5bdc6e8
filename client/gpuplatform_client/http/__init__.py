"""Requests to the API over HTTP: their form, repetitions, streams."""
