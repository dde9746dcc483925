"""Prefill workers that hand their requests to decode workers."""

from aisim_gym.envs.scaling_env import ScalingEnv


class DisaggregatedEnv(ScalingEnv):
    """Scale a fleet of LLM inference workers with separate pools for prefill and decode.

    Rewards, episode end, info and arguments are those of :class:`ScalingEnv`.

    ## Description

    A request is prefilled by a worker of one pool, which determines its time to the first token,
    and decoded by a worker of the other, which determines the gaps between its tokens. At every
    tick the agent sets the size of both pools. With too few workers, requests miss their latency
    limits; with too many, idle GPUs are paid for. A new worker takes 30 s to start; a surplus
    worker finishes its requests before it is removed.

    ## Action Space

    ``MultiDiscrete([8 8])``, prefill first: choice ``i`` requests ``min_workers + i`` workers of
    the pool, active and starting ones together. With ``action="deltas"`` it is ``MultiDiscrete([3
    3])``: one worker fewer, none, one more.

    ## Observation Space

    A float32 vector, every entry in 0..1. A log scale to m is log(1 + x) / log(1 + m). Engine
    entries come from the latest pass of each active worker (sums; shares and times are means) and
    are 0 if no worker reported one; traffic entries cover the time since the previous tick.

    | index | name | unit | low | high |
    |---|---|---|---|---|
    | 0 | prefill_active | workers / max_workers | 0 | 1 |
    | 1 | prefill_starting | workers / max_workers | 0 | 1 |
    | 2 | prefill_draining | workers / max_workers | 0 | 1 |
    | 3 | prefill_queued_requests | log scale to 10 000 | 0 | 1 |
    | 4 | prefill_queued_tokens | log scale to 10^8 | 0 | 1 |
    | 5 | prefill_running_requests | log scale to 10 000 | 0 | 1 |
    | 6 | prefill_batch_tokens | prompt tokens / token budget | 0 | 1 |
    | 7 | prefill_kv_used | KV tokens / KV capacity | 0 | 1 |
    | 8 | prefill_pass_time | seconds / 0.5 | 0 | 1 |
    | 9 | decode_active | workers / max_workers | 0 | 1 |
    | 10 | decode_starting | workers / max_workers | 0 | 1 |
    | 11 | decode_draining | workers / max_workers | 0 | 1 |
    | 12 | decode_queued_requests | log scale to 10 000 | 0 | 1 |
    | 13 | decode_queued_tokens | log scale to 10^8 | 0 | 1 |
    | 14 | decode_running_requests | log scale to 10 000 | 0 | 1 |
    | 15 | decode_batch_tokens | prompt tokens / token budget | 0 | 1 |
    | 16 | decode_kv_used | KV tokens / KV capacity | 0 | 1 |
    | 17 | decode_pass_time | seconds / 0.5 | 0 | 1 |
    | 18 | request_rate | requests/s, log scale to 1000 | 0 | 1 |
    | 19 | completion_rate | requests/s, log scale to 1000 | 0 | 1 |
    | 20 | in_flight | requests, log scale to 10 000 | 0 | 1 |
    | 21 | overdue | requests, log scale to 10 000 | 0 | 1 |
    | 22 | bad | share of the requests that ended | 0 | 1 |
    | 23 | mean_input | tokens, log scale to 10^6 | 0 | 1 |
    | 24 | mean_output | tokens, log scale to 10^6 | 0 | 1 |
    | 25 | ttft | mean / limit / 4 | 0 | 1 |
    | 26 | itl | mean / limit / 4 | 0 | 1 |
    | 27 | gpus | share of the most GPUs | 0 | 1 |
    | 28 | time | share of the horizon | 0 | 1 |

    ## Starting State

    One active prefill worker and two active decode workers without requests.

    The workload begins at time 0 and the fleet runs to the first tick, ``tick_s`` later. Every
    episode has new requests, drawn by the built-in generator: 15 minutes, 3 to 15 requests per
    second. ``reset(seed=5)`` starts a sequence of episodes that further calls of ``reset()``
    continue; the same seed gives the same sequence on every platform.
    """

    kind = "disagg"
    worker_options = {  # noqa: RUF012
        "prefill_workers": "num_prefill_workers",
        "decode_workers": "num_decode_workers",
    }
