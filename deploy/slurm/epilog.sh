#!/bin/sh
# Epilog of slurm.conf: removes the containers that a pilot of GPU Platform left on this node, as the pilot's user.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH # slurmd sets none
folder=${COMPUTE_VAR_DIR:+$COMPUTE_VAR_DIR/pilots}
[ -d "${folder:-/var/tmp/gpuplatform-pilots-$SLURM_JOB_UID}" ] || exit 0 # a job of others
cd "${GPUPLATFORM_CHECKOUT:-/opt/gpuplatform}" || exit 0
timeout 60 runuser -u "$SLURM_JOB_USER" -- .venv/bin/python -m hostworker.pilot --clean || true
