#!/bin/sh
# Epilog of slurm.conf: removes the containers that a pilot of GPU Platform left on this node, as the pilot's user.
cd "${GPUPLATFORM_CHECKOUT:-/opt/gpuplatform}" || exit 0
runuser -u "$SLURM_JOB_USER" -- .venv/bin/python -m hostworker.pilot --clean || true
