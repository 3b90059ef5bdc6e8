"""A week of people's work within minutes: `python -m tests.virtual.week --users 200`; prints one JSON object last.

The web application, periodic tasks and the loops of simulated hosts are the product's own, and go by a clock that is
set. After each day everything that is stored is counted (`tests.virtual.stored`): what people do may leave history, for
which there is a retention, and all else must not grow by more than 1 % a day after the first. Then years pass without
work, in which the retention has to empty every table of history.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any, Final

from bench.sizes import size
from tests.virtual.campaign import private_database

YEARS: Final = timedelta(days=2 * 1825)


def main() -> None:
    """Live the week and say how all that is stored has grown; fail where something does that must not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=size(200, 4))
    parser.add_argument("--hosts", type=int, default=size(4, 1))
    parser.add_argument("--days", type=int, default=size(7, 2))
    parser.add_argument("--acts", type=float, default=size(2.0, 4.0), help="of a user in a day")
    parser.add_argument("--step-minutes", type=int, default=size(60, 240), help="by which the clock is set on")
    options = parser.parse_args()
    os.environ["COMPUTE_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
    os.environ["COMPUTE_UPLOAD_HOURS"] = "24"
    begun = time.monotonic()
    with private_database("week", with_redis=True):
        figures = live(options)
    figures["seconds"] = round(time.monotonic() - begun)
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.exit(bool(figures["problems"]))


def live(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was done, what was stored after each day, how it grew, and what should not be so."""
    from tests.virtual import stored
    from tests.virtual.town import town

    step = timedelta(minutes=options.step_minutes)
    with town(options.users, options.hosts, options.acts) as place:
        days: list[stored.Stored] = []
        for day in range(options.days):
            for _step in range(timedelta(days=1) // step):
                place.step(step)
            place.back_up()
            days.append(stored.counted(place.aged))
            sys.stderr.write(f"day {day + 1}: {json.dumps(place.done)}\n")
        done = Counter(place.done)
        place.end_all(step)
        left = place.after(YEARS, stored.history())
    growth = stored.growth(days)
    wrong = [f"{what} grows {rate} % a day" for what, rate in stored.too_fast(growth).items()]
    wrong += [f"{table} has {rows} rows after years" for table, rows in left.items()]
    wrong += [f"{count} x {error}" for error, count in place.errors.items()]
    return {"users": options.users, "days": options.days, "done": done, "growth": growth, "problems": wrong}


if __name__ == "__main__":
    main()
