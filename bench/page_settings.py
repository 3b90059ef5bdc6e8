"""The settings of the platform with the URLs of the benchmark, and responses that say what they cost."""

from gpuplatform.settings import *  # noqa: F403  # what settings modules do

ROOT_URLCONF = "bench.page_urls"
MIDDLEWARE = ["bench.page_cost.ReportCost", *MIDDLEWARE]  # noqa: F405
