"""`python -m tests.verification` runs the models of all experts with their real weights and updates their cards."""

import argparse
import sys
from collections.abc import Sequence

from tests.readme import MODALITIES
from tests.verification.cards import cards_path, write_measurement
from tests.verification.cases import find_case
from tests.verification.report import Report
from tests.verification.run import FindCase, verify


def main(packages: Sequence[str], model_id: str, find: FindCase = find_case) -> int:
    """Verifies the cards of some experts, prints a row for each and updates models.json after each.

    Args:
        packages: of the experts, such as "experts.vision".
        model_id: the only model to verify; empty for all.
        find: returns the case of a card.

    Returns:
        The exit status: 1 if a model failed, or there is none of this id.
    """
    report = Report()
    for outcome in (outcome for package in packages for outcome in verify(package, model_id, find)):
        report.add(outcome)
        if outcome.measurement and outcome.measurement.commit:
            write_measurement(cards_path(outcome.package), outcome.task, outcome.model_id, outcome.measurement)
    return report.close()


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.verification", description=__doc__)
    parser.add_argument("--expert", choices=MODALITIES, help="only the models of this expert")
    parser.add_argument("--model", default="", help="only the model with this id")
    return parser.parse_args(given)


if __name__ == "__main__":
    chosen = parse_arguments()
    sys.exit(main([f"experts.{name}" for name in MODALITIES if chosen.expert in (None, name)], chosen.model))
