#!/bin/sh
# The demo of a cluster: data and services of its own in var/demo-cluster, and no container engine.
set -eu
folder=${DEMO_CLUSTER_DIR:-$(pwd)/var/demo-cluster}
mkdir -p "$folder"
exec env COMPUTE_VAR_DIR="$folder" COMPUTE_HOST_NAME=demo-cluster COMPUTE_DOCKER_URL="unix://$folder/no-engine.sock" \
    COMPUTE_BACKUP_HOURS=0 DATABASE_URL= REDIS_URL= .venv/bin/python manage.py democluster "$@"
