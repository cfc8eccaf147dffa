"""What goes into each item, as far as it is known before the batch begins."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gateway.cli.errors import USAGE, Problem

TEXT, JSON, UNKNOWN = "text", "json", ""
"""Modalities of what is no file, and what nobody knows yet."""


@dataclass(frozen=True)
class Parameters:
    """What a plan takes.

    Args:
        whose: the plan, in words.
        modalities: by name, in the plan's order; None: it is yet to be planned, and takes what there is.
        required: names without which it does not run.
    """

    whose: str
    modalities: Mapping[str, str] | None = None
    required: Collection[str] = field(default_factory=tuple)

    def knows(self, name: str) -> bool:
        return self.modalities is None or name in self.modalities

    def modality(self, name: str) -> str:
        return (self.modalities or {}).get(name, UNKNOWN)

    def check_name(self, name: str, where: str) -> None:
        """Raises Problem if what stands somewhere under a name is not taken."""
        if not self.knows(name):
            raise Problem(f"{where} has {name}, which {self.whose} does not take", remedy=self._taken, status=USAGE)

    def check(self, names: Collection[str], where: str) -> None:
        """Raises Problem if names that are given somewhere leave a required one out."""
        if missing := [name for name in self.required if name not in names]:
            raise Problem(f"{where} has no {' and no '.join(missing)}", remedy=self._taken, status=USAGE)

    def for_files(self, given: Collection[str]) -> str:
        """Which one a file is for that nobody has named.

        Args:
            given: those that have a value already.

        Raises:
            Problem: there is none, or more than one.
        """
        if self.modalities is None:
            return "file1"
        free = [name for name in self.modalities if name not in given]
        for fitting in (
            [name for name in free if name in self.required],
            [name for name in free if self.modalities[name] not in (TEXT, JSON)],
            free,
        ):
            if len(fitting) == 1:
                return fitting[0]
        if not free:
            raise Problem(f"{self.whose} takes no file", remedy=self._taken, status=USAGE)
        raise Problem(
            f"{self.whose} takes {' and '.join(free)}: which of them the files are is not said",
            remedy="give --items a CSV with these columns, or the others with --set",
            status=USAGE,
        )

    @property
    def _taken(self) -> str:
        told = (f"{name} ({modality})" if modality else name for name, modality in (self.modalities or {}).items())
        return f"it takes {', '.join(told) or 'nothing'}"
