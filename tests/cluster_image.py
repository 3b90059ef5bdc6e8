"""The image of clusters' programs: the catalogue's PyTorch without editors, with Open MPI, mpi4py and Ray."""

import io
import os
from contextlib import closing
from typing import Final

import docker

from resources.images.base import Bases, has_image
from resources.images.catalogue.inputs import network_arguments
from tests.containers import ENGINE_URL
from tests.exclusive import exclusive
from tests.images import ensure_images

IMAGE: Final = "gptest/cluster:2"  # raise the tag when the content changes
DOCKERFILE: Final = rb"""
ARG BASE
FROM gpuplatform/pytorch:2.13 AS torch
FROM ${BASE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        openmpi-bin openssh-client openssh-server python3 python3-venv && \
    rm -rf /var/lib/apt/lists /etc/ssh/ssh_host_* && useradd --create-home --uid 1000 --shell /bin/bash work
ENV PATH=/opt/python/bin:/usr/local/bin:/usr/bin:/bin
COPY --from=torch /opt/python /opt/python
COPY --from=torch /etc/ssl/certs /etc/ssl/certs
RUN pip install --no-cache-dir mpi4py ray
USER work
WORKDIR /home/work
"""


def ensure_cluster_image() -> str:
    """Return its reference; it is built where it is missing, which takes minutes."""
    with exclusive("cluster-image"), closing(docker.DockerClient(ENGINE_URL, timeout=1200)) as engine:
        if not has_image(engine, IMAGE):
            ensure_images(["PyTorch 2.13"])
            base = Bases(engine, refresh=False, report=lambda _: None).reference("bookworm")
            arguments = {"BASE": base} | network_arguments(os.environ)
            file = io.BytesIO(DOCKERFILE)
            engine.images.build(fileobj=file, tag=IMAGE, buildargs=arguments, network_mode="host", rm=True)
    return IMAGE
