"""Kubernetes quantities, such as 500m or 2Gi."""

import re
from decimal import Decimal

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGT]|[KMGT]i)?")
_UNITS = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000)}
_UNITS |= {unit: Decimal(1000) ** power for power, unit in enumerate("MGT", start=2)}
_UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGT", start=1)}


def amount(quantity: object) -> Decimal:
    """Parses a Kubernetes quantity, such as 500m, 2 or 1Gi."""
    found = _QUANTITY.fullmatch(str(quantity))
    if not found:
        raise ValueError(f"invalid quantity: {quantity}")
    return Decimal(found[1]) * _UNITS[found[2] or ""]
