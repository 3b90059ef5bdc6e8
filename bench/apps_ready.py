"""Importing this module makes Django's models importable, for benchmarks that start a platform of their own."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuplatform.settings")
django.setup()
