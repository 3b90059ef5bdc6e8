"""The command line: `gpuplatform`."""
