"""The settings of the platform with the URLs of the benchmark."""

from gpuplatform.settings import *  # noqa: F403  # what settings modules do

ROOT_URLCONF = "bench.page_urls"
