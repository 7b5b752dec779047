"""What a board's total power is made of: a list of its rails, or the one rail that feeds all others."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Sequence, Tuple

from harness.core.errors import InvalidValueError

TOTAL = "power_total_mw"
"""The channel of the total."""

INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed the whole module (Orin NX and Nano, Xavier NX, TX2; Nano) or the whole kit (Thor)."""

NOT_CONNECTED = "NC"
"""The label of a sensor channel that measures nothing."""


def rail_channel(label: str) -> str:
    """The channel of a rail: `power_vdd_gpu_soc_mw`."""
    return f"power_{re.sub('[^a-z0-9]+', '_', label.lower()).strip('_')}_mw"


class RailTotal:
    """The definition of a total.

    Attributes:
        rails: labels of the rails whose sum it is; empty where there is no total.
        why_none: why there is none; empty where there is one.
        text: the definition in words, for the record.
    """

    def __init__(self, rails: Tuple[str, ...], why_none: str, text: str) -> None:
        """See the class."""
        self.rails = rails
        self.why_none = why_none
        self.text = text

    def of(self, rails_mw: Mapping[str, float]) -> float:
        """The total of one reading in mW.

        Args:
            rails_mw: label to power of every rail that gave a value.

        Raises:
            ValueError: there is no total, one of its rails gave no value, or it is not above 0, which no running board
                draws; never a sum of fewer rails.
        """
        if self.why_none:
            raise ValueError(self.why_none)
        without = [label for label in self.rails if label not in rails_mw]
        if without:
            raise ValueError(f"its rail {', '.join(without)} gave no value")
        total_mw = sum(rails_mw[label] for label in self.rails)
        if total_mw <= 0:
            raise ValueError(
                f"its rails {', '.join(self.rails)} read {total_mw:g} mW in all: a running board draws more"
            )
        return total_mw


def choose_total(labels: Sequence[str], definition: Optional[Sequence[str]] = None, remark: str = "") -> RailTotal:
    """Decide what the total is.

    Args:
        labels: the rails that are there.
        definition: the rails that make up the total, from the board's specification; None where it is not known: then
            it is the input rail, where there is one. A sum of all rails is never guessed: one may lie inside another,
            as VDDQ_VDD2_1V8AO of AGX Orin is reported to lie inside VIN_SYS_5V0.
        remark: what is to be known of the definition; goes into its text.

    Raises:
        InvalidValueError: the definition is empty or names a rail twice.
    """
    if definition is None:
        inputs = [label for label in INPUT_RAILS if label in labels]
        if not inputs:
            why = f"none of the rails {', '.join(labels)} is an input, and which of them make up the total is not known"
            return RailTotal((), why, "")
        rails = tuple(inputs[:1])
    else:
        rails = tuple(definition)
        if not rails or len(set(rails)) < len(rails):
            raise InvalidValueError(
                f"the rails of a total must be one or more, each once, got {list(rails)}",
                f"rails here: {', '.join(labels)}",
            )
        absent = [label for label in rails if label not in labels]
        if absent:
            why = f"rail {', '.join(absent)} of its definition is not among the rails here: {', '.join(labels)}"
            return RailTotal(rails, why, "")
    apart = [label for label in labels if label not in rails]
    what = f"rail {rails[0]}" if len(rails) == 1 else f"sum of the rails {', '.join(rails)}"
    text = f"{what}; not added: {', '.join(apart) or 'none'}"
    return RailTotal(rails, "", f"{text}. {remark}" if remark else text)
