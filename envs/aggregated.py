"""One pool of workers that prefill and decode."""

from aisim_gym.envs.scaling_env import ScalingEnv


class AggregatedEnv(ScalingEnv):
    """Scale a fleet of LLM inference workers that prefill and decode.

    Rewards, episode end, info and arguments are those of :class:`ScalingEnv`.

    ## Description

    Requests arrive at a pool of workers. At every tick the agent sets the number of workers. With
    too few, requests miss their latency limits; with too many, idle GPUs are paid for. A new worker
    takes 30 s to start; a surplus worker finishes its requests before it is removed.

    ## Action Space

    ``Discrete(8)``: action ``i`` requests ``min_workers + i`` workers, active and starting ones
    together. With ``action="deltas"`` it is ``Discrete(3)``: one worker fewer, none, one more.

    ## Observation Space

    A float32 vector, every entry in 0..1. A log scale to m is log(1 + x) / log(1 + m). Engine
    entries come from the latest pass of each active worker (sums; shares and times are means) and
    are 0 if no worker reported one; traffic entries cover the time since the previous tick.

    | index | name | unit | low | high |
    |---|---|---|---|---|
    | 0 | workers_active | workers / max_workers | 0 | 1 |
    | 1 | workers_starting | workers / max_workers | 0 | 1 |
    | 2 | workers_draining | workers / max_workers | 0 | 1 |
    | 3 | workers_queued_requests | log scale to 10 000 | 0 | 1 |
    | 4 | workers_queued_tokens | log scale to 10^8 | 0 | 1 |
    | 5 | workers_running_requests | log scale to 10 000 | 0 | 1 |
    | 6 | workers_batch_tokens | prompt tokens / token budget | 0 | 1 |
    | 7 | workers_kv_used | KV tokens / KV capacity | 0 | 1 |
    | 8 | workers_pass_time | seconds / 0.5 | 0 | 1 |
    | 9 | request_rate | requests/s, log scale to 1000 | 0 | 1 |
    | 10 | completion_rate | requests/s, log scale to 1000 | 0 | 1 |
    | 11 | in_flight | requests, log scale to 10 000 | 0 | 1 |
    | 12 | overdue | requests, log scale to 10 000 | 0 | 1 |
    | 13 | bad | share of the requests that ended | 0 | 1 |
    | 14 | mean_input | tokens, log scale to 10^6 | 0 | 1 |
    | 15 | mean_output | tokens, log scale to 10^6 | 0 | 1 |
    | 16 | ttft | mean / limit / 4 | 0 | 1 |
    | 17 | itl | mean / limit / 4 | 0 | 1 |
    | 18 | gpus | share of the most GPUs | 0 | 1 |
    | 19 | time | share of the horizon | 0 | 1 |

    ## Starting State

    Three active workers without requests.

    The workload begins at time 0 and the fleet runs to the first tick, ``tick_s`` later. Every
    episode has new requests, drawn by the built-in generator: 15 minutes, 3 to 15 requests per
    second. ``reset(seed=5)`` starts a sequence of episodes that further calls of ``reset()``
    continue; the same seed gives the same sequence on every platform.
    """

    kind = "agg"
    worker_options = {"workers": "num_workers"}  # noqa: RUF012
