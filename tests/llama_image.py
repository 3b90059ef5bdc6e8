"""The image of llama.cpp: its own server from the wheel of xllamacpp, and a program that makes a tiny model."""

import io
import os
import tarfile
from contextlib import closing
from typing import Final

import docker

from resources.images.base import has_image
from resources.images.catalogue.inputs import network_arguments
from tests.containers import ENGINE_URL
from tests.exclusive import exclusive
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image

IMAGE: Final = "gptest/llama:1"  # raise the tag when the content changes
MAKE_MODEL: Final = "make-tiny-model"  # with the path of the file
# Takes the options of llama.cpp's server that the runtime variant gives it.
SERVER: Final = """\
#!/opt/python/bin/python3
import argparse
import threading
import xllamacpp
options = argparse.ArgumentParser()
options.add_argument("--model")
options.add_argument("--host")
options.add_argument("--port", type=int)
given = options.parse_args()
asked = xllamacpp.CommonParams()
asked.model.path, asked.hostnames, asked.port = given.model, [given.host], given.port
asked.n_ctx, asked.n_parallel, asked.chat_template = 512, 2, "chatml"
server = xllamacpp.Server(asked)
threading.Event().wait()
"""
# A llama of 120,000 random weights, whose tokens are bytes and letters.
TINY: Final = """\
#!/opt/python/bin/python3
import sys
import gguf
import numpy
WIDTH, LAYERS, HEADS, FEED = 64, 2, 2, 128
random = numpy.random.default_rng(7)
pieces = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), "\\u2581", *map(chr, range(97, 123))]
out = gguf.GGUFWriter(sys.argv[1], "llama")
out.add_context_length(512)
out.add_embedding_length(WIDTH)
out.add_block_count(LAYERS)
out.add_feed_forward_length(FEED)
out.add_head_count(HEADS)
out.add_head_count_kv(HEADS)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_dimension_count(WIDTH // HEADS)
out.add_tokenizer_model("llama")
out.add_token_list(pieces)
out.add_token_scores([-float(n) for n in range(len(pieces))])
out.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259)])
out.add_unk_token_id(0)
out.add_bos_token_id(1)
out.add_eos_token_id(2)
shapes = {"token_embd": (len(pieces), WIDTH), "output": (len(pieces), WIDTH), "output_norm": (WIDTH,)}
for n in range(LAYERS):
    shapes |= {f"blk.{n}.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {f"blk.{n}.ffn_{part}": (FEED, WIDTH) for part in ("gate", "up")}
    shapes |= {f"blk.{n}.ffn_down": (WIDTH, FEED), f"blk.{n}.attn_norm": (WIDTH,), f"blk.{n}.ffn_norm": (WIDTH,)}
for name, shape in shapes.items():
    weights = numpy.ones(shape) if len(shape) == 1 else random.standard_normal(shape) / 8
    out.add_tensor(f"{name}.weight", weights.astype(numpy.float32))
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
"""
DOCKERFILE: Final = f"""
FROM {PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
USER root
RUN apt-get update -q && apt-get install -qy --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists
RUN pip install --no-cache-dir xllamacpp==2026.10.11549 gguf==0.19.0
COPY llama-server {MAKE_MODEL} /usr/local/bin/
USER work
"""


def ensure_llama_image() -> str:
    """Return its reference; it is built where it is missing, which takes a minute."""
    with exclusive("llama-image"), closing(docker.DockerClient(ENGINE_URL, timeout=1200)) as engine:
        if not has_image(engine, IMAGE):
            ensure_python_image()
            engine.images.build(
                fileobj=_context({"Dockerfile": DOCKERFILE, "llama-server": SERVER, MAKE_MODEL: TINY}),
                custom_context=True,
                tag=IMAGE,
                buildargs=network_arguments(os.environ),
                network_mode="host",
                rm=True,
            )
    return IMAGE


def _context(files: dict[str, str]) -> io.BytesIO:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    content.seek(0)
    return content
