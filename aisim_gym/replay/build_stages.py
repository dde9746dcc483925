"""Build the tables of optional stages and shared links from the spec of a fleet."""

import math
from typing import Any, NamedTuple

import numpy as np

from aisim_gym.fleet.encoder import EncoderRow
from aisim_gym.fleet.server_stage import ServerStageRow
from aisim_gym.fleet.tables import StageTimesRow
from aisim_gym.fleet.transfer_links import TransferSetRow
from aisim_gym.spec import (
    AggregatedFleet,
    DetokenizationSpec,
    DisaggregatedFleet,
    EncoderSpec,
    TokenizationSpec,
)
from aisim_gym.tables import Table, make_table


class _StageSpecs(NamedTuple):
    """The optional stages and shared links of a fleet."""

    encoder: EncoderSpec | None = None
    tokenization: TokenizationSpec | None = None
    detokenization: DetokenizationSpec | None = None
    receive_rate: float | None = None  # of decode links; None: transfers do not share links


def has_stages(fleet: AggregatedFleet | DisaggregatedFleet) -> bool:
    """Return whether a fleet has any optional stage, or shared links."""
    return any(part is not None for part in _stage_specs(fleet))


def make_stages(
    fleet: AggregatedFleet | DisaggregatedFleet, num_workers: int, num_requests: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the initial tables of stages and links.

    Returns:
        (tables by name, names of the tables without rows because a stage is off).
    """
    encoder, tokenization, detokenization, receive_rate = _stage_specs(fleet)
    servers = _make_server_stages(tokenization, detokenization)
    transfer_set = make_table(TransferSetRow, 1)
    transfer_set[0].receive_rate = receive_rate or math.inf
    tables = {
        "server_stages": servers,
        "server_free_ms": np.zeros((num_workers, max(servers["num_servers"])), np.float64),
        "encoder": _make_encoder(encoder),
        "encoder_free_ms": np.zeros(encoder.num_instances if encoder else 0, np.float64),
        "encoder_forward_ms": np.array(encoder.forward_ms if encoder else (), np.float64),
        "transfer_set": transfer_set,
    }
    left_out = []
    if encoder or tokenization or detokenization:
        tables["stage_times"] = _make_stage_times(num_requests)
    else:
        left_out += ["stage_timers", "stage_times"]
    if encoder is None:
        left_out.append("encoder_queue")
    if receive_rate is None:
        left_out += ["transfers", "links"]
    return tables, left_out


def _stage_specs(fleet: AggregatedFleet | DisaggregatedFleet) -> _StageSpecs:
    if isinstance(fleet, AggregatedFleet):
        return _StageSpecs()
    sending_gb_s = fleet.prefill.engine.kv_transfer_bandwidth or 0.0
    receiving_gb_s = fleet.decode.engine.kv_transfer_bandwidth or 0.0
    receive_rate = None
    if fleet.transfer_links == "shared" and sending_gb_s > 0.0:
        receive_rate = receiving_gb_s / sending_gb_s if receiving_gb_s > 0.0 else math.inf
    return _StageSpecs(fleet.encoder, fleet.tokenization, fleet.detokenization, receive_rate)


def _make_server_stages(
    *by_pool: TokenizationSpec | DetokenizationSpec | None,
) -> Table[ServerStageRow]:
    stages = make_table(ServerStageRow, len(by_pool))
    for pool_id, spec in enumerate(by_pool):
        if spec is not None:
            stages[pool_id].num_servers = spec.workers
            stages[pool_id].request_ms = spec.request_ms
            stages[pool_id].token_ms = spec.token_ms
    return stages


def _make_stage_times(count: int) -> Table[StageTimesRow]:
    times = make_table(StageTimesRow, count)
    for name in StageTimesRow.__annotations__:
        times[name][:] = math.nan
    return times


def _make_encoder(spec: EncoderSpec | None) -> Table[EncoderRow]:
    table = make_table(EncoderRow, 1)
    if spec is not None:
        table[0].num_instances = spec.num_instances
        table[0].num_gpus = spec.num_gpus
        table[0].preprocess_ms = spec.preprocess_ms
        table[0].transfer_ms = spec.transfer_ms
    return table
