"""The settings of a test's process with the error pages of production; static files keep their plain names.

They are looked up once, and browsers keep them from page to page, as those of production, where each page of DEBUG asks
for all of its seventy modules and style sheets anew.
"""

from gpuplatform.settings import *  # noqa: F403  # settings are a module's names

DEBUG = False
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 3600
