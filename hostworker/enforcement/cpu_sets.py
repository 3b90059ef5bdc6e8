"""Which CPUs of the host a container is pinned to: those that the fewest others have. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence


def parse_cpus(text: str) -> frozenset[int]:
    """Return the CPUs of a list as the kernel writes it, such as "0-2,8". Raises ValueError."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Return the CPUs as the kernel writes a list of them, such as "0-2,8"."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def choose(nodes: Sequence[Collection[int]], taken: Iterable[Collection[int]], count: int) -> frozenset[int]:
    """Return `count` CPUs for a container, or all there are where there are no more.

    `nodes` are the CPUs of each NUMA node, `taken` those of each other container. CPUs that the fewest containers have
    come first; then those within one node, and of the nodes the one that is left with the fewest idle CPUs (best fit).
    """
    load = Counter(cpu for cpus in taken for cpu in cpus)
    every = sorted({cpu for node in nodes for cpu in node})
    if count >= len(every):
        return frozenset(every)
    candidates = [(False, node) for node in nodes if len(node) >= count] + [(True, every)]
    ranked = []
    for is_spread, pool in candidates:
        chosen = sorted(pool, key=lambda cpu: (load[cpu], cpu))[:count]
        idle = sum(load[cpu] == 0 for cpu in pool)
        ranked.append((sum(load[cpu] for cpu in chosen), is_spread, idle, chosen))
    return frozenset(min(ranked)[3])


def resized(
    own: Collection[int], nodes: Sequence[Collection[int]], taken: Iterable[Collection[int]], count: int
) -> frozenset[int]:
    """Return `count` CPUs for a container that has `own`, keeping or giving up as few of them as possible."""
    others = list(taken)
    load = Counter(cpu for cpus in others for cpu in cpus)
    if count <= len(own):
        return frozenset(sorted(own, key=lambda cpu: (load[cpu], cpu))[:count])
    near = [node for node in nodes if set(own) & set(node)]
    free = {cpu for node in nodes for cpu in node} - set(own)
    by_rank = sorted(free, key=lambda cpu: (load[cpu], not any(cpu in node for node in near), cpu))
    return frozenset(own) | frozenset(by_rank[: count - len(own)])
