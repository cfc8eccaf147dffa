"""Repositories of the cards without their weights: configuration, processor and the list of tensors.

fixtures/<owner>__<name>.json states the files of a repository, each with its source, and what was compared with it:
"hub page" (a page of the repository), "copy" (the file in another public repository, or that of a model derived from
this one), "library" (defaults of transformers or diffusers, which the tests compare) or "memory" (public
documentation, from memory). The tensors are those of the class in the configuration's own `architectures`, under the
names that the library writes to files, with what is known to differ. So a loader that picks another class than the
repository's lacks weights. "stored_class" names the class of the tensors where the configuration names another, and
"loaded_class" a class that the loader picks on purpose, because it needs only a part of them. Vocabularies are made up
(tokenizers.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
WITHOUT_WEIGHTS = frozenset({"opencv/canny", "opencv/line-segments", "opencv/scribble", "opencv/soft-edges"})
"""Models on cards that are functions without weights."""
SOURCES = ("hub page", "copy", "library", "memory")
"""Sources of a file, the best first."""


@dataclass(frozen=True)
class Fixture:
    """What is known of one repository."""

    content: Mapping[str, Any]

    @classmethod
    def read(cls, model_id: str) -> "Fixture":
        return cls(json.loads((FIXTURES / f"{model_id.replace('/', '__')}.json").read_text(encoding="utf-8")))

    @property
    def model_id(self) -> str:
        return str(self.content["id"])

    @cached_property
    def files(self) -> Mapping[str, Any]:
        """JSON files of the repository by path."""
        return {name: file["content"] for name, file in self.content["files"].items()}

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of its files, the best first."""
        return tuple(sorted({self.source_of(name) for name in self.files}, key=SOURCES.index))

    def source_of(self, name: str) -> str:
        return str(self.content["files"][name]["source"]).partition(":")[0]

    @property
    def tokenizers(self) -> Mapping[str, str]:
        """Classes of its tokenizers by folder; "" is the repository itself."""
        own = {"": self.content["tokenizer"]} if "tokenizer" in self.content else {}
        return {**own, **self.content.get("tokenizers", {})}

    @property
    def dtype(self) -> str:
        """Number type of the weights."""
        return str(self.content.get("dtype") or self.files["config.json"].get("torch_dtype", "float32"))

    @property
    def loaded_dtype(self) -> str:
        """Number type, as torch names it, in which loaders of other repositories load this one; empty for theirs."""
        return str(self.content.get("loaded_dtype", ""))

    @property
    def stored_class(self) -> str:
        """Class whose weights the repository has; empty if its configuration names it."""
        return str(self.content.get("stored_class", ""))

    @property
    def loaded_class(self) -> str:
        """Class that the loader picks for a part of the weights; empty if it needs all."""
        return str(self.content.get("loaded_class", ""))

    @property
    def required(self) -> tuple[str, ...]:
        """Repositories that the loaders of this one need in addition."""
        return tuple(self.content.get("requires", ()))

    def deviations(self, component: str = "") -> Mapping[str, Any]:
        """Returns how the tensors deviate from those that the library writes.

        "renamed" has patterns of names, "absent" names; "extra" has tensors that the class does not load, and "untied"
        those that it loads instead of using another one twice.

        Args:
            component: folder of a component of a pipeline.
        """
        given: Mapping[str, Any] = self.content.get("tensors", {})
        return given.get("components", {}).get(component, {}) if component else given


def fixture_ids() -> list[str]:
    return sorted(path.stem.replace("__", "/") for path in FIXTURES.glob("*.json"))
