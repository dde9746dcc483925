"""Tables of ``aisim-gym size``: the resulting fleet and the next smaller ones."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from aisim_gym.sizing import MeasuredFleet, SizedFleet
from aisim_gym.sizing.size_fleet import limits_text
from aisim_gym.spec import ReplaySpec, SlaSpec


def size_table(sized: SizedFleet) -> Table:
    """Return the fleet and the next smaller ones, a line each."""
    lines = [("smallest", sized.fleet), *(("next smaller", fleet) for fleet in sized.smaller)]
    caption = f"{len(sized.measured)} fleets replayed."
    if not sized.smaller:
        caption += " There is no smaller fleet."
    return _table(lines, sized.share, sized.sla, caption)


def partial_table(
    measured: Sequence[MeasuredFleet], share: float, spec: ReplaySpec, is_interrupted: bool
) -> Table:
    """Return the fleets of a search without a result, in order of their GPUs."""
    ordered = sorted(measured, key=lambda fleet: (fleet.gpus, fleet.size))
    lines = [("enough" if f.attainment_frac >= share else "too small", f) for f in ordered]
    ending = "the search was interrupted" if is_interrupted else "none is enough"
    return _table(lines, share, spec.sla, f"{len(lines)} fleets replayed; {ending}.")


def partial_dict(
    measured: Sequence[MeasuredFleet], share: float, spec: ReplaySpec
) -> dict[str, Any]:
    """Return the fleets of a search without a result as plain data, with the keys of a result."""
    ordered = sorted(measured, key=lambda fleet: (fleet.gpus, fleet.size))
    return {
        "share": share,
        "sla": spec.sla.model_dump(mode="json"),
        "fleet": None,
        "smaller": [],
        "measured": [fleet.to_dict() for fleet in ordered],
    }


def _table(
    lines: Iterable[tuple[str, MeasuredFleet]], share: float, sla: SlaSpec, caption: str
) -> Table:
    table = Table(
        title=f"{limits_text(sla)} for {100.0 * share:g} % of the requests",
        box=SIMPLE_HEAD,
        caption=caption,
        caption_justify="left",
    )
    table.add_column("Fleet")
    table.add_column("Workers")
    for name in ("GPUs", "SLO met", "GPU-hours"):
        table.add_column(name, justify="right")
    for name, fleet in lines:
        table.add_row(
            name,
            str(fleet.size),
            str(fleet.gpus),
            f"{100.0 * fleet.attainment_frac:.2f} %",
            f"{fleet.gpu_hours:.2f}",
        )
    return table
