"""Elastic pools under faults: `python -m tests.virtual.elastic_campaign --seeds 20` prints a JSON object last."""

import argparse
import json
import sys
import time

from bench.sizes import size
from tests.virtual.campaign import private_database


def main() -> None:
    """Tell the stories of `tests.virtual.elastic`; fail where one of them found something wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=size(20, 2))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    begun = time.monotonic()
    with private_database("elastic"):
        from tests.virtual import elastic

        figures = elastic.run(range(options.first, options.first + options.seeds))
    figures["seconds"] = round(time.monotonic() - begun)
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(bool(figures["failing"]))


if __name__ == "__main__":
    main()
