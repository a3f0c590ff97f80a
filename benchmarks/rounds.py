"""The one method of all comparisons: side by side, round after round."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence

#: How often rounds are resampled for the interval of a median, and how much is cut off at each end.
DRAWS, TAIL = 2_000, 0.025


def compare(
    title: str,
    ways: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    show: Callable[[float], str],
    digits: int = 2,
    beside: str | None = None,
) -> dict[str, float]:
    """Measure each of ``ways``, print the comparison, and return its ratios: see :func:`report`."""
    return report(title, [measure(ways, rounds)], show=show, digits=digits, beside=beside)


def measure(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure each of ``ways`` once per round, in a random order.

    A machine's speed drifts, and other programs use it, too; so a way is never compared with the average of
    another one, but with the measure of the first way in the same round.
    """
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            measured[name].append(ways[name]())
    return measured


def report(
    title: str,
    sets: Sequence[Mapping[str, Sequence[float]]],
    *,
    show: Callable[[float], str],
    digits: int = 2,
    beside: str | None = None,
) -> dict[str, float]:
    """Print how the ways compare, by what each of ``sets`` of rounds has measured of them.

    :param sets: more than one if the measured processes were restarted in between.
    :param beside: a further way whose ratio to the last one is printed.
    :returns: by way, the median over the rounds of its measure, as a ratio to that of the first way.
    """
    names = list(sets[0])
    rounds = sum(len(one[names[0]]) for one in sets)
    in_sets = f", in {len(sets)} sets" if len(sets) > 1 else ""
    print(f"{title}, {rounds} interleaved rounds{in_sets}")
    ratios = {}
    for name in names:
        paired = _paired(sets, name, names[0])
        ratios[name] = _median(paired)
        own = statistics.median(value for one in sets for value in one[name])
        line = f"  {name:28} {show(own):>18}   ratio {ratios[name]:.{digits}f}"
        print(line + ("" if name == names[0] else f"  {_spread(paired, digits)}"))
    if beside is not None:
        paired = _paired(sets, names[-1], beside)
        middle = f"{_median(paired):.{digits}f}"
        print(f"  {names[-1]} is {middle} times {beside}  {_spread(paired, digits)}")
    return ratios


def _paired(
    sets: Sequence[Mapping[str, Sequence[float]]], name: str, other: str
) -> list[list[float]]:
    """The measures of ``name`` as ratios to those of ``other`` in the same round, by set."""
    return [[mine / its for mine, its in zip(one[name], one[other], strict=True)] for one in sets]


def _median(sets: Sequence[Sequence[float]]) -> float:
    return statistics.median(ratio for one in sets for ratio in one)


def _spread(sets: Sequence[Sequence[float]], digits: int) -> str:
    ratios = [ratio for one in sets for ratio in one]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    first, last = _interval(sets)
    return (
        f"(95 %: {first:.{digits}f} to {last:.{digits}f}; "
        f"half of the rounds: {low:.{digits}f} to {high:.{digits}f})"
    )


def _interval(sets: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 cases, by the bootstrap: sets are drawn with replacement, and
    rounds within each, since the rounds of a set have in common what was made for it."""
    medians = sorted(
        _median([random.choices(one, k=len(one)) for one in random.choices(sets, k=len(sets))])
        for _ in range(DRAWS)
    )
    cut = int(DRAWS * TAIL)
    return medians[cut], medians[-1 - cut]
