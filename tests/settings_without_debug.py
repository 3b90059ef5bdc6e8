"""The settings of a test's process with the error pages of production; static files keep their plain names."""

from gpuplatform.settings import *  # noqa: F403  # settings are a module's names

DEBUG = False
