"""Tables of ``aisim-gym bench``: one per section, and one for the check."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from rich import box
from rich.console import RenderableType
from rich.table import Table

from aisim_gym.bench.bench_run import SectionResults
from aisim_gym.bench.measurement import Measurement, Target
from aisim_gym.bench.recorded_ratios import RatioComparison


def section_tables(
    name: str, results: SectionResults, markdown: bool = False
) -> Iterator[RenderableType]:
    """Yield the results of a section: medians, ratios and targets; other times; skipped items."""
    if results.measurements:
        yield _main_table(name, results.measurements, markdown)
    details = {found.name: found.details for found in results.measurements if found.details}
    if details:
        yield _details_table(f"{name}: other times", details, markdown)
    for skipped in results.skipped:
        yield f"{name}: {skipped.name} was not measured: {skipped.reason}"


def check_table(comparisons: Sequence[RatioComparison], markdown: bool = False) -> Table:
    """Return a table of recorded and new ratios."""
    table = _table("check against recorded ratios", markdown)
    for column in ("section", "what", "compared with", "recorded", "allowed", "now", "verdict"):
        table.add_column(column)
    for comparison in comparisons:
        recorded = comparison.recorded
        sign = ">=" if recorded.limit < recorded.ratio else "<="
        table.add_row(
            recorded.section,
            recorded.name,
            recorded.other_name,
            f"{recorded.ratio:.2f}x",
            f"{sign} {recorded.limit:.2f}x",
            "" if comparison.ratio is None else f"{comparison.ratio:.2f}x",
            str(comparison.verdict),
        )
    return table


def number(value: float) -> str:
    """Return a number with at least three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _main_table(name: str, measurements: Sequence[Measurement], markdown: bool) -> Table:
    table = _table(name, markdown)
    for column in ("what", "ours", "compared with", "ratio", "target", "met"):
        table.add_column(column, justify="right" if column in ("ours", "ratio") else "left")
    for found in measurements:
        table.add_row(*_cells(found))
    return table


def _details_table(title: str, details: Mapping[str, Mapping[str, float]], markdown: bool) -> Table:
    table = _table(title, markdown)
    table.add_column("what")
    columns = dict.fromkeys(column for values in details.values() for column in values)
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in details.items():
        cells = (number(values[column]) if column in values else "" for column in columns)
        table.add_row(name, *cells)
    return table


def _table(title: str, markdown: bool) -> Table:
    return Table(title=title, title_justify="left", box=box.MARKDOWN if markdown else box.SIMPLE)


def _cells(found: Measurement) -> tuple[str, ...]:
    ratio, meets_target = found.ratio, found.meets_target
    other = f"{number(median(found.other))} {found.unit} {found.other_name}" if found.other else ""
    return (
        found.name,
        f"{number(median(found.ours))} {found.unit}",
        other,
        "" if ratio is None else f"{ratio:.2f}x",
        "" if found.target is None else _target_text(found.target, found.unit),
        "" if meets_target is None else ("yes" if meets_target else "NO"),
    )


def _target_text(target: Target, unit: str) -> str:
    bound = f"{target.bound:g}x" if target.of_ratio else f"{target.bound:g} {unit}"
    return f"{'>=' if target.is_floor else '<='} {bound}"
