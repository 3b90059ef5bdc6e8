#!/bin/sh
# with_node.sh ARGUMENT...: run the Node that node.sh has found or installed.
PATH=$PWD/.venv/bin/node-bin:$PATH exec node "$@"
