"""The account in words: a table, and the story of each task that did not end where it should."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from chaos.account import Case, complaint, totals
from chaos.harms import HARMS


@dataclass(frozen=True)
class Report:
    pair: str
    seed: int
    elapsed_s: float
    cases: Sequence[Case]
    deliveries: int
    harmed: Counter[str]
    #: Letters brought back from the workers' logs and from the spool after the workers had stopped.
    from_logs: int
    from_spool: int
    #: Workers that ended, or did not end, although no harm or shutdown was the cause.
    unasked: Sequence[str]
    #: How often a worker ended by itself when its broker went away.
    gave_up: int
    #: How often one ended by itself because its pool was killed before it had started.
    had_no_pool: int
    #: How often a worker said that it was stalled.
    stalls: int
    #: Messages still with the broker.
    left: int

    @cached_property
    def wrong(self) -> list[Case]:
        return [case for case in self.cases if complaint(case, self.deliveries)]

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.unasked and not self.left

    def text(self) -> str:
        lines = [f"{self.pair}, seed {self.seed}, {self.elapsed_s:.0f} s", ""]
        lines += _table({"sent": len(self.cases), **dict(sorted(totals(self.cases).items()))})
        again = sum(max(0, case.finishes - 1) for case in self.cases)
        lines += _table({
            "bodies that ran to the end again": again,
            "tasks handed out or sent again": sum(case.came_again for case in self.cases),
            "handed out again by another master that did not know": sum(
                case.handed_out_again and case.starts > 1 for case in self.cases
            ),
            "resolved by a later success": sum(
                case.letter is not None and case.open_letter is None for case in self.cases
            ),
            "letters from the spool at the end": self.from_spool,
            "letters from the workers' logs": self.from_logs,
            "of these, of tasks that had succeeded since": sum(
                case.done_before_import for case in self.cases
            ),
            "messages left with the broker": self.left,
            "workers that ended when the broker went away": self.gave_up,
            "workers that ended when their new pool was killed": self.had_no_pool,
            "times that a worker was stalled": self.stalls,
        })  # fmt: skip
        lines += ["", "harm done"]
        lines += _table({harm.name: self.harmed[harm.name] for harm in HARMS})
        lines += ["", *self._verdict()]
        return "\n".join(lines)

    def _verdict(self) -> list[str]:
        if self.is_right:
            return ["All that was sent has ended in one place."]
        counted = Counter(complaint(case, self.deliveries) for case in self.wrong)
        return [
            "WRONG",
            *_table({str(what): count for what, count in counted.items()}),
            *self.unasked,
        ]


def story(case: Case, directory: Path) -> str:
    """Everything that was seen of one task."""
    sent = case.sent
    lines = [f"\n{sent.task_id} {sent.kind.name}: sent at {sent.at:.3f}, tries {sent.tries}"]
    lines += [
        f"  {row.at:.3f} {row.what}, attempt {row.attempt}, pid {row.pid}"
        + (", redelivered" if row.redelivered else "")
        for row in case.rows
    ]
    if case.letter is not None:
        letter = case.letter
        lines.append(
            f"  letter: {letter.state.value}, {letter.reason.value}, {letter.exception_type}: "
            f"{letter.message[:200]}, last at {letter.last_failed_at.timestamp():.3f}, "
            f"by {letter.worker}; {letter.explanation.rule}; {letter.explanation.evidence}"
        )
    for log in sorted(directory.glob("worker*.log")):
        found = re.findall(f".*{sent.task_id}.*", log.read_text(errors="replace"))
        lines += [f"  {log.stem}: {line[:300]}" for line in found[:12]]
    return "\n".join(lines)


def _table(values: dict[str, int]) -> list[str]:
    return [f"  {count:>7,}  {name}" for name, count in values.items()]
