"""REST framework and what the settings make it import can be imported in either order."""

import subprocess
import sys

import pytest

SETUP = "import django; django.setup(); "


@pytest.mark.parametrize("first", ["gpuplatform.rest.parsing", "gpuplatform.rest.errors", "rest_framework.views"])
def test_modules_import_in_any_order(first: str) -> None:
    code = f"{SETUP}import {first}; from rest_framework.views import APIView; assert APIView.parser_classes"
    subprocess.run([sys.executable, "-c", code], check=True)
