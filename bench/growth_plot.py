"""Draws how costs grow with the number of hosts, as SVG: both axes logarithmic, readable on light and dark pages."""

from collections.abc import Mapping
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH, HEIGHT = 860, 520
LEFT, TOP, RIGHT, BOTTOM = 60, 20, 300, 40  # margins; the names stand at the right
LINE_HEIGHT: Final = 15
COLOURS: Final = ("#2a78d6", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be185d")
STYLE: Final = """
    text { font: 12px system-ui, sans-serif; fill: #33383d } .grid { stroke: #8886; fill: none } .linear { stroke: #888;
    stroke-dasharray: 4 4 } @media (prefers-color-scheme: dark) { text { fill: #d6dbe0 } .frame { fill: #16191d } }
    @media (prefers-color-scheme: light) { .frame { fill: #fff } } polyline { fill: none; stroke-width: 2 }
"""


def plot(sizes: Mapping[int, Mapping[str, float]], slopes: Mapping[str, float]) -> str:
    """Return the picture: each cost relative to what it is at the smallest size, with its exponent of growth."""
    hosts = sorted(sizes)
    first = sizes[hosts[0]]
    names = sorted((name for name in first if first[name] > 0), key=lambda name: -slopes[name])
    ratios = {name: [max(sizes[size][name] / first[name], 0.1) for size in hosts] for name in names}
    low = floor(log10(min(min(each) for each in ratios.values())))
    high = ceil(log10(max(max(each) for each in ratios.values())))

    def x(count: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * log10(count / hosts[0]) / log10(hosts[-1] / hosts[0])

    def y(ratio: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(ratio) - low) / (high - low)

    parts = [f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}"/>']
    for power in range(low, high + 1):
        parts.append(f'<path class="grid" d="M{LEFT} {y(10**power):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, y(10**power) + 4, f"{10**power:g} x", "end"))
    for count in hosts:
        parts.append(f'<path class="grid" d="M{x(count):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(_text(x(count), HEIGHT - BOTTOM + 18, f"{count:,} hosts", "middle"))
    grown = hosts[-1] / hosts[0]
    parts.append(f'<path class="linear" d="M{x(hosts[0]):.1f} {y(1):.1f}L{x(hosts[-1]):.1f} {y(grown):.1f}"/>')
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in zip(hosts, ratios[name], strict=True))
        parts.append(f'<polyline points="{points}" stroke="{colour}"/>')
        at = TOP + LINE_HEIGHT * (number + 1)
        parts.append(f'<path d="M{WIDTH - RIGHT + 12} {at - 4}h14" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(WIDTH - RIGHT + 32, at, f"{slopes[name]:.2f}  {name.replace('_', ' ')}", "start"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Growth of costs'
        f' with the number of hosts"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
