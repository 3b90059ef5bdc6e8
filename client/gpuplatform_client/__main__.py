"""`python -m gpuplatform_client`."""

from gpuplatform_client.cli.app import main

main()
