"""Progress of a job on standard error: one line that is replaced on a terminal, otherwise a line after each tenth."""

import sys
import time
from datetime import timedelta

INTERVAL_SECONDS = 0.5
"""Least time between two states of the line on a terminal."""
TENTHS = 10


class Progress:
    """Progress of a job.

    Args:
        is_silent: whether nothing is printed.
    """

    def __init__(self, *, is_silent: bool = False) -> None:
        self._is_silent, self._is_terminal = is_silent, sys.stderr.isatty()
        self._total = self._done = self._shown = self._first_done = 0
        self._first_at = self._last_at = self._started_at = self._shown_at = time.monotonic()

    @property
    def seconds_per_row(self) -> float:
        """Time of a row, without the time until the first rows had ended, in which models are loaded."""
        if self._done > self._first_done:
            return (self._last_at - self._first_at) / (self._done - self._first_done)
        return (self._last_at - self._started_at) / max(1, self._done)

    def note(self, text: str) -> None:
        """Shows what the job does before it runs."""
        if self._is_terminal:
            self._print(text)

    def start(self, total: int) -> None:
        """Starts counting so many rows."""
        self._total, self._started_at = total, time.monotonic()
        self.note("loading the models")

    def show(self, done: int, failed: int) -> None:
        """Shows how many rows have ended."""
        self._done, self._last_at = done, time.monotonic()
        if not self._first_done:
            self._first_done, self._first_at = done, self._last_at
        tenth = TENTHS * done // max(1, self._total)
        is_due = self._last_at - self._shown_at > INTERVAL_SECONDS if self._is_terminal else tenth > self._shown
        if is_due or done == self._total:
            self._shown, self._shown_at = tenth, self._last_at
            self._print(self._describe(done, failed))

    def close(self) -> None:
        """Ends the line."""
        if self._is_terminal and not self._is_silent:
            sys.stderr.write("\r\x1b[K")

    def _describe(self, done: int, failed: int) -> str:
        rate = done / max(1e-9, self._last_at - self._started_at)
        parts = [f"{done:,} of {self._total:,}"]
        if failed:
            parts.append(f"{failed:,} failed")
        parts.append(f"{rate:.3g} rows/s")
        if self._first_done < done < self._total:
            left = timedelta(seconds=round(self.seconds_per_row * (self._total - done)))
            parts.append(f"{left} left")
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        if not self._is_silent:
            sys.stderr.write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")
            sys.stderr.flush()
