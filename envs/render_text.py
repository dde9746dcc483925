"""Show a snapshot as one screen of text."""

from aisim_gym.envs.episode_account import Paid
from aisim_gym.envs.episode_record import pool_load
from aisim_gym.envs.outcomes import Outcomes
from aisim_gym.replay import FleetDescription, PoolSnapshot, RoleDescription, ScalingSnapshot

_HEADER = (
    f"{'pool':8}{'active':>8}{'starting':>10}{'draining':>10}{'running':>9}{'queued':>8}{'KV':>7}"
)


def fleet_text(
    snapshot: ScalingSnapshot, fleet: FleetDescription, totals: Outcomes, paid: Paid
) -> str:
    """Return the fleet, its traffic and the episode's results up to its last step.

    Args:
        snapshot: The current fleet.
        fleet: Its capacity and service levels.
        totals: Outcomes of the steps so far.
        paid: Cost of the steps so far.
    """
    traffic = snapshot.traffic
    rate_rps = traffic.num_req / traffic.duration_s if traffic.duration_s > 0.0 else 0.0
    lines = [f"tick {snapshot.tick_ordinal}, {snapshot.now_ms / 1000.0:.1f} s", _HEADER]
    if fleet.prefill is None:
        lines.append(_pool_line("workers", snapshot.decode, fleet.decode))
    else:
        lines.append(_pool_line("prefill", snapshot.prefill, fleet.prefill))
        lines.append(_pool_line("decode", snapshot.decode, fleet.decode))
    lines += [
        f"last {traffic.duration_s:.1f} s: {traffic.num_req} arrived ({rate_rps:.2f}/s), "
        f"{traffic.shape_count} completed, mean {traffic.avg_isl:.0f} + {traffic.avg_osl:.0f} "
        f"tokens",
        f"mean TTFT {traffic.avg_ttft_ms:.0f} ms (limit {fleet.ttft_slo_ms:.0f}), "
        f"mean ITL {traffic.avg_itl_ms:.1f} ms (limit {fleet.itl_slo_ms:.0f})",
        f"episode: {totals.good} good of {totals.arrived} arrived, {totals.violations} violations, "
        f"{paid.gpu_hours:.3f} GPU-hours, {paid.gpu_usd:.2f} USD",
    ]
    return "\n".join(lines) + "\n"


def _pool_line(name: str, pool: PoolSnapshot, role: RoleDescription) -> str:
    load = pool_load(pool, role)
    return (
        f"{name:8}{len(pool.active_ids):8}{len(pool.starting_ids):10}{len(pool.draining_ids):10}"
        f"{load.running:9}{load.queued:8}{load.kv_frac:7.0%}"
    )
