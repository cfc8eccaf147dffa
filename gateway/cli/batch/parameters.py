"""Parameters of the plan of a batch, as far as they are known before the start."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gateway.cli.errors import USAGE, Problem

TEXT, JSON, UNKNOWN = "text", "json", ""
"""Modalities of parameters that are not files; UNKNOWN before planning."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a plan.

    Args:
        plan_name: name of the plan for messages.
        modalities: modalities by parameter, in the plan's order; None before planning, when all names are valid.
        required: names of the required parameters.
    """

    plan_name: str
    modalities: Mapping[str, str] | None = None
    required: Collection[str] = field(default_factory=tuple)

    def knows(self, name: str) -> bool:
        return self.modalities is None or name in self.modalities

    def modality(self, name: str) -> str:
        return (self.modalities or {}).get(name, UNKNOWN)

    def check_name(self, name: str, where: str) -> None:
        """Raises Problem if a parameter is unknown."""
        if not self.knows(name):
            raise Problem(
                f"{where} has {name}, which is not a parameter of {self.plan_name}", remedy=self._summary, status=USAGE
            )

    def check(self, names: Collection[str], where: str) -> None:
        """Raises Problem if a required parameter is missing."""
        if missing := [name for name in self.required if name not in names]:
            raise Problem(f"{where} has no value for {' and '.join(missing)}", remedy=self._summary, status=USAGE)

    def for_files(self, given: Collection[str]) -> str:
        """The parameter that unnamed files are for.

        Args:
            given: parameters that have a value.

        Raises:
            Problem: there is none, or it is ambiguous.
        """
        if self.modalities is None:
            return "file1"
        free = [name for name in self.modalities if name not in given]
        for candidates in (
            [name for name in free if name in self.required],
            [name for name in free if self.modalities[name] not in (TEXT, JSON)],
            free,
        ):
            if len(candidates) == 1:
                return candidates[0]
        if not free:
            raise Problem(f"{self.plan_name} has no parameter for files", remedy=self._summary, status=USAGE)
        raise Problem(
            f"{self.plan_name} has several parameters for files: {' and '.join(free)}",
            remedy="give a CSV with these columns to --items, or set the others with --set",
            status=USAGE,
        )

    @property
    def _summary(self) -> str:
        parameters = (
            f"{name} ({modality})" if modality else name for name, modality in (self.modalities or {}).items()
        )
        return f"its parameters: {', '.join(parameters) or 'none'}"
