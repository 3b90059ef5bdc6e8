"""`make bench-growth`: what a minute of 100, 300 and 1,000 hosts asks of everything, and how each cost grows.

Each size has a new database and Redis, and a process that does what the workers of that many simulated hosts do within
a quarter of a minute, as fast as it can: the loops are the product's own and go by a clock that is set, so that counts
do not depend on how busy the machine is. Hosts have begun at different times within a minute, and what they repeat is
spread over its pause, so that a quarter holds a quarter of everything. Eight of ten sessions of each host run. Then one
session on each of a hundred hosts ends and the next starts; N consumers wait for their messages as those of hosts do,
and N gateways follow the routes. All costs are given for a minute and all hosts.
Prints one JSON object as its last line: `sizes` has the costs of the whole platform for each number of hosts, `slopes`
the exponent of growth of each (1: as the hosts do), `faster_than_hosts` those that grow faster; `--svg FILE` draws.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.common import load
from bench.fresh_services import MANAGE, fresh_services, shell_output
from bench.growth_plot import plot
from bench.load_roles import process_with
from bench.sizes import size

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "bench-growth"
SIZES: Final = size([100, 300, 1_000], [2, 4])
LINEAR: Final = 1.1  # the most that counts as growing as the hosts do


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="HOSTS")
    parser.add_argument("--svg", type=Path, help="file to draw the growth into")
    options = parser.parse_args()
    sizes = {hosts: measured(hosts) for hosts in options.sizes}
    slopes = {cost: slope([(hosts, costs[cost]) for hosts, costs in sizes.items()]) for cost in sizes[options.sizes[0]]}
    if options.svg:
        options.svg.write_text(plot(sizes, slopes))
    figures = {
        "sizes": sizes,
        "slopes": slopes,
        "faster_than_hosts": [cost for cost, found in slopes.items() if found > LINEAR],
        "load": load(),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def measured(hosts: int) -> dict[str, float]:
    """Return the costs of so many hosts, by name; progress goes to stderr."""
    with fresh_services(FOLDER, COMPUTE_HOST_NAME="none", COMPUTE_BACKUP_HOURS="0", DEBUG="false") as environment:
        subprocess.run([*MANAGE, "collectstatic", "--no-input", "-v", "0"], env=environment, check=True)
        postgres = process_with(f"-D {FOLDER}/postgres")
        *_, last = shell_output(environment, f"from bench.growth_world import main; main({hosts}, {postgres})")
    sys.stderr.write(f"{hosts} hosts: {last}\n")
    costs: dict[str, float] = json.loads(last)
    return costs


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of growth: the slope of the straight line of least squares through the logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points if y > 0]
    if len(logs) < 2:
        return 0.0
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    found: float = sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    return round(found, 2)


if __name__ == "__main__":
    main()
