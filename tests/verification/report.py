"""Table of a verification, printed row by row as the models are run."""

import sys

from tests.verification.run import Outcome

_COLUMNS = ("model", "task", "result", "commit", "licence", "weights", "in memory", "seconds")
_COMMIT_CHARACTERS = 12


class Report:
    """Prints the rows, and counts what failed."""

    def __init__(self) -> None:
        self._passed = self._failed = 0
        _print_row(*_COLUMNS)
        _print_row(*("---" for _ in _COLUMNS))

    def add(self, outcome: Outcome) -> None:
        """Prints the row of a card."""
        if outcome.measurement:
            self._passed += 1
            found = outcome.measurement
            facts = (found.commit[:_COMMIT_CHARACTERS], found.license, found.download_bytes, found.loaded_bytes)
        else:
            self._failed += 1
            facts = ("", "", 0, 0)
        commit, license_name, *sizes = facts
        result = f"failed: {outcome.error}" if outcome.error else "passed"
        cells = (commit, license_name, *(_megabytes(int(size)) for size in sizes), f"{outcome.seconds:.0f}")
        _print_row(outcome.model_id, outcome.task, result, *cells)

    def close(self) -> int:
        """Prints the counts; returns the exit status."""
        sys.stdout.write(f"\n{self._passed} passed, {self._failed} failed\n")
        return 1 if self._failed or not self._passed else 0


def _print_row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n")
    sys.stdout.flush()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size else ""
