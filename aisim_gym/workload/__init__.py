"""Trace readers and traffic generators that return request tables.

==============================  =================================================
what you have                   what reads it
==============================  =================================================
arrays or lists                 :func:`requests_from_arrays`
a Mooncake JSONL file or rows   :func:`read_mooncake`, :func:`requests_from_mooncake_rows`
an Azure LLM inference CSV      :func:`read_azure_csv`
a BurstGPT CSV                  :func:`read_burstgpt`
a CSV of our own                :func:`read_simple_csv`
a ``GeneratorSpec``             :func:`generate_requests`
a ``TrafficSpec``               :func:`generate_requests`, :func:`stream_requests`
a ``SyntheticSpec``             :func:`generate_synthetic`
a ``WorkloadSpec``              :func:`load_workload`
==============================  =================================================

``transforms`` changes tables, :func:`trace_statistics` describes them, :func:`write_trace` writes.
"""

from aisim_gym.workload.arrays import requests_from_arrays
from aisim_gym.workload.azure import read_azure_csv
from aisim_gym.workload.burstgpt import read_burstgpt
from aisim_gym.workload.expectations import describe_generator, longest_request, mean_rate_rps
from aisim_gym.workload.generator import generate_requests
from aisim_gym.workload.load import detect_trace_format, load_workload
from aisim_gym.workload.mooncake import read_mooncake, requests_from_mooncake_rows
from aisim_gym.workload.mooncake_writer import write_mooncake
from aisim_gym.workload.prompt_blocks import PromptBlocks, build_prompt_blocks
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.simple_csv import read_simple_csv, write_simple_csv
from aisim_gym.workload.statistics import TraceStatistics, trace_statistics
from aisim_gym.workload.synthetic import generate_synthetic
from aisim_gym.workload.trace_writer import write_trace
from aisim_gym.workload.traffic import stream_requests
from aisim_gym.workload.transforms import (
    clip_lengths,
    drop_longer_than,
    merge_tables,
    scale_rate,
    slice_requests,
    speed_up,
    spread_stamps,
)

__all__ = [
    "PromptBlocks",
    "RequestTable",
    "TraceStatistics",
    "build_prompt_blocks",
    "clip_lengths",
    "describe_generator",
    "detect_trace_format",
    "drop_longer_than",
    "generate_requests",
    "generate_synthetic",
    "load_workload",
    "longest_request",
    "mean_rate_rps",
    "merge_tables",
    "read_azure_csv",
    "read_burstgpt",
    "read_mooncake",
    "read_simple_csv",
    "requests_from_arrays",
    "requests_from_mooncake_rows",
    "scale_rate",
    "slice_requests",
    "speed_up",
    "spread_stamps",
    "stream_requests",
    "trace_statistics",
    "write_mooncake",
    "write_simple_csv",
    "write_trace",
]
