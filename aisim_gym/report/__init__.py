"""Results of a finished or paused replay: summary, records per request, files.

``summarize(replay)`` returns the :class:`Report`, :func:`write_report` writes it to a folder,
:func:`headline` returns the key numbers for comparing planners, :func:`plot_run` draws it.
"""

from aisim_gym.report.completed import CompletedRequests
from aisim_gym.report.export import write_records_jsonl, write_report
from aisim_gym.report.headline import Headline, headline
from aisim_gym.report.per_request import RequestRecords
from aisim_gym.report.plots import plot_run
from aisim_gym.report.report import Report, summarize
from aisim_gym.report.scaling import ScaleEvents

__all__ = [
    "CompletedRequests",
    "Headline",
    "Report",
    "RequestRecords",
    "ScaleEvents",
    "headline",
    "plot_run",
    "summarize",
    "write_records_jsonl",
    "write_report",
]
