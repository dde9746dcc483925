"""Tables of ``aisim-gym trace info``: a line per statistic, a column per file."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from aisim_gym.workload.statistics import LengthStatistics, TraceStatistics

NO_DATA = "–"  # noqa: RUF001

BORDERS = 3
"""Characters of a column besides its text; a table has one more border."""

FOLDED_NAME = 14
"""Width at which long names are wrapped if whole names do not fit."""


def statistics_tables(traces: Mapping[str, TraceStatistics], width: int) -> list[Table]:
    """Return the statistics of traces by name; a dash means too little data.

    Numbers are never wrapped: columns that do not fit side by side go into another table.

    Args:
        traces: At least one.
        width: Width of the screen in characters.
    """
    columns = {name: _sections(trace) for name, trace in traces.items()}
    room = width - 1
    whole = {name: max(len(name), _widest(column)) for name, column in columns.items()}
    if _measures_width(columns) + sum(whole.values()) + BORDERS * len(whole) <= room:
        return [_table(columns, whole)]
    folded = {
        name: max(min(len(name), FOLDED_NAME), _widest(column)) for name, column in columns.items()
    }
    groups: list[list[str]] = []
    left = 0
    for name, least in folded.items():
        if not groups or least + BORDERS > left:
            groups.append([])
            left = room - _measures_width(columns)
        groups[-1].append(name)
        left -= least + BORDERS
    return [_table({name: columns[name] for name in group}, folded) for group in groups]


def _table(columns: Mapping[str, Sequence[Mapping[str, str]]], widths: Mapping[str, int]) -> Table:
    table = Table()
    table.add_column("measure", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", overflow="fold", width=widths[name])
    for sections in zip(*columns.values(), strict=True):
        for measure in sections[0]:
            table.add_row(measure, *(section[measure] for section in sections))
        table.add_section()
    return table


def _widest(column: Sequence[Mapping[str, str]]) -> int:
    return max(len(text) for section in column for text in section.values())


def _measures_width(columns: Mapping[str, Sequence[Mapping[str, str]]]) -> int:
    """Return the width of the first column, borders included."""
    sections = next(iter(columns.values()))
    return max(len(measure) for section in sections for measure in section) + BORDERS


def _sections(trace: TraceStatistics) -> Sequence[Mapping[str, str]]:
    """Return the lines of a column, name to value, group by group."""
    no_ids = trace.block_references == 0
    return (
        {
            "requests": f"{trace.requests:,}",
            "sessions": f"{trace.sessions:,}" if trace.sessions else NO_DATA,
            "duration, s": _text(trace.duration_s),
            "mean rate, 1/s": _text(trace.mean_rate_rps),
            "peak rate in 1 s, 1/s": _text(trace.peak_1s_rps),
            "peak rate in 10 s, 1/s": _text(trace.peak_10s_rps),
            "peak rate in 60 s, 1/s": _text(trace.peak_60s_rps),
        },
        {
            "CV of gaps": _text(trace.cv),
            "CV of gaps in a minute": _text(trace.cv_in_minute),
            "IDC of 1 s": _text(trace.idc_1s),
            "IDC of 10 s": _text(trace.idc_10s),
            "IDC of 60 s": _text(trace.idc_60s),
            "IDC of 300 s": _text(trace.idc_300s),
        },
        _lengths("input", trace.input_tokens),
        _lengths("output", trace.output_tokens),
        {
            "hash ids": NO_DATA if no_ids else f"{trace.block_references:,}",
            "distinct blocks": NO_DATA if no_ids else f"{trace.distinct_blocks:,}",
            "reusable input share": _share(trace.reusable_frac, no_ids),
            "share with reuse": _share(trace.requests_with_reuse_frac, no_ids),
        },
    )


def _lengths(what: str, lengths: LengthStatistics) -> Mapping[str, str]:
    return {
        f"{what} tokens, mean": _text(lengths.mean),
        "  standard deviation": _text(lengths.std),
        "  1 % quantile": _text(lengths.q1),
        "  5 %": _text(lengths.q5),
        "  25 %": _text(lengths.q25),
        "  50 %": _text(lengths.q50),
        "  75 %": _text(lengths.q75),
        "  95 %": _text(lengths.q95),
        "  99 %": _text(lengths.q99),
        "  longest": f"{lengths.max:,}",
    }


def _text(value: float | None) -> str:
    """Return a number with four significant digits, or more before the decimal point."""
    if value is None:
        return NO_DATA
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _share(value: float | None, no_ids: bool) -> str:
    return NO_DATA if no_ids or value is None else f"{value:.3f}"
