"""The one way in which things are compared here: side by side, round after round."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping


def compare(
    title: str,
    ways: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    show: Callable[[float], str],
    digits: int = 2,
    beside: str | None = None,
) -> dict[str, float]:
    """Measure each of ``ways`` once a round, in an order drawn anew, and print the comparison.

    A machine's speed drifts, and other programs take their share of it; so a way is never compared
    with another one's average, but with the measure that the first way had in the same round.

    :param beside: a further way whose ratio to the last one is printed.
    :returns: by way, the median over the rounds of its measure, as a ratio to that of the first way.
    """
    baseline = next(iter(ways))
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            measured[name].append(ways[name]())
    print(f"{title}, {rounds} interleaved rounds")
    ratios = {}
    for name, own in measured.items():
        paired = [mine / first for mine, first in zip(own, measured[baseline], strict=True)]
        ratios[name] = statistics.median(paired)
        line = f"  {name:28} {show(statistics.median(own)):>18}   ratio {ratios[name]:.{digits}f}"
        print(line + ("" if name == baseline else f"  {_spread(paired, digits)}"))
    if beside is not None:
        name = list(ways)[-1]
        paired = [
            mine / other for mine, other in zip(measured[name], measured[beside], strict=True)
        ]
        middle = statistics.median(paired)
        print(f"  {name} is {middle:.{digits}f} times {beside}  {_spread(paired, digits)}")
    return ratios


def _spread(ratios: list[float], digits: int) -> str:
    low, _median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"(half of the rounds: {low:.{digits}f} to {high:.{digits}f})"
