"""`make faults`: a seeded campaign of faults on real hosts, engines, containers and processes; see `tests/cluster`.

Rounds of several faults at once, while people use the platform; after each round everything has to settle, and every
promise to hold. Prints one JSON object as its last line and exits with 1 where something did not hold:

faults:            how often each kind happened.
gang_faults:       how many acted on clusters.
sessions:          how many were submitted and accepted.
violations:        broken invariants, sessions past their limits, and what did not settle.
wrong_words:       sessions whose owner is told what does not go with their state.
lost:              sessions that were accepted and are gone, or ended although neither their owner nor a fault that
                   nobody survives ended them.
orphans_after_60s: containers that no live session owned, a minute after all had settled.
leaked_leases:     leases of sessions that have ended.
recovery_s:        seconds from the end of a fault until all had settled, by kind; other faults of its round included.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import django

from bench.sizes import size
from tests.cluster import isolation
from tests.cluster.site import Site
from tests.shell_image import ensure_shell_image
from tests.tiny_image import ensure_tiny_image

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.cluster.campaign"


def main() -> int:
    """Run the campaign that the arguments describe; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=size(500, 1), help="how many at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=size(3, 1))
    parser.add_argument("--kinds", default=size("", "host worker killed"), help="comma-separated; all by default")
    parser.add_argument("--gangs", action="store_true", help="only kinds that act on clusters")
    stories = ["campaign", "short", "deployment"]
    parser.add_argument("--story", choices=stories, default="campaign", help="short: each kind once")
    parser.add_argument("--logs", type=Path, default=ROOT / "var" / "faults", help="folder of the processes' output")
    parser.add_argument("--minutes", type=float, default=60, help="begin no round after that")
    options = parser.parse_args()
    if not isolation.is_isolated():
        ensure_shell_image()  # while the network is there
        ensure_tiny_image()
        isolation.enter(MODULE, sys.argv[1:])
    isolation.prepare()
    for old in options.logs.glob("*.log"):
        old.unlink()
    site = Site(options.logs, hosts=options.hosts)
    site.start_services()
    os.environ.update(site.environment())
    os.environ.update(
        {
            "DATABASE_URL": site.database.local_url,
            "COMPUTE_HOSTS_DATABASE_ADDRESS": f"{site.database.machine.address}:5432",
            "COMPUTE_HOSTS_REDIS_ADDRESS": f"{site.broker.machine.address}:6379",
        }
    )
    django.setup()
    from tests.cluster.stories import tell  # models can be imported from here on

    result = tell(site, options)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    failed = any(result[name] for name in ("violations", "wrong_words", "lost", "orphans_after_60s", "leaked_leases"))
    os._exit(int(failed))  # the kernel ends all processes of the cluster with this one's namespace


if __name__ == "__main__":
    main()
