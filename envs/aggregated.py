"""One pool of workers that prefill and decode."""

from aisim_gym.envs.scaling_env import ScalingEnv


class AggregatedEnv(ScalingEnv):
    """Scale a fleet of LLM inference workers that prefill and decode.

    ## Description

    Requests arrive at a pool of workers. At every tick the agent sets how many workers there should
    be: too few and requests miss their latency limits, too many and GPUs are paid for nothing. A
    new worker takes 30 s to start; a surplus one finishes its requests before it is gone.

    ## Action Space

    ``Discrete(8)``: action ``i`` asks for ``min_workers + i`` workers, active and starting ones
    together. With ``action="deltas"`` it is ``Discrete(3)``: one worker fewer, none, one more.

    ## Observation Space

    A float32 vector, every entry in 0..1. A log scale to m is log(1 + x) / log(1 + m). Engine
    entries come from the latest pass of each active worker (sums; shares and times are means) and
    are 0 where no worker reported one; traffic entries cover the time since the previous tick.

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

    ## Rewards

    The default ``cost_slo`` is the sum of four terms, all negative: GPU-hours at their price (1 per
    GPU-hour), 0.01 per request that ended outside its TTFT or ITL limit, and 0.001 per worker by
    which the action moved the targets (``overdue``, the fourth, has weight 0). Starting, active and
    draining workers are paid for. Other weights: ``reward={"name": "cost_slo",
    "violation_weight": 0.1}``; other rewards: see :mod:`aisim_gym.envs.reward`.

    The first reward includes the time before the first action, the last one everything up to the
    end of the episode, so the rewards of an episode add up to the cost of the whole run. At the end
    of a truncated episode, requests still open count as violations in proportion to how far they
    are past a limit, each at most once.

    ## Starting State

    Three active workers without requests.

    The workload begins at time 0 and the fleet runs to the first tick, ``tick_s`` later. Every
    episode has new requests, drawn by the built-in generator: 15 minutes, 3 to 15 requests per
    second. ``reset(seed=5)`` starts a sequence of episodes that further calls of ``reset()``
    continue; the same seed gives the same sequence on every platform.

    ## Episode End

    * ``terminated``: every request has ended. The last step runs up to that moment.
    * ``truncated``: the tick at the horizon came with work left. If the last request ends exactly
      at the horizon, the episode is terminated.

    It is never both. The horizon is ``horizon_s``, by default the length of the workload plus
    300 s; ``gymnasium.make(..., max_episode_steps=n)`` truncates earlier, without the count of open
    requests in the last reward.

    ## Info

    Numbers only, the same keys after every step: ``now_s``; of this step ``duration_s``,
    ``gpu_hours``, ``gpu_usd``, ``arrived``, ``completed``, ``rejected``, ``good``,
    ``violations``, ``overdue_s``, ``churn``, ``action_refused`` (1: over ``max_gpus``, so targets
    were left as they are), ``obs_clipped`` (entries outside their bounds) and each
    ``reward_<term>``; of the episode so far ``total_gpu_hours``, ``total_gpu_usd``,
    ``total_arrived``, ``total_completed``, ``total_rejected``, ``total_good``. A reward with
    constraints adds each ``cost_<name>`` and their sum ``cost``. ``reset()`` leaves out the terms
    of the reward. The last step adds ``is_success``: at least 95 % of the requests that arrived
    were good.

    ``env.unwrapped.snapshot`` is what a planner sees, ``env.unwrapped.replay`` the whole run,
    ``env.unwrapped.fork()`` an independent copy to look ahead with.

    ## Arguments

    All but ``requests`` and objects for ``observation``, ``action`` and ``reward`` are JSON values,
    so that ``env.spec.to_json()`` describes the environment. "Per pool" means one value for all,
    or a mapping from pool to value.

    | argument | default | meaning |
    |---|---|---|
    | ``engine`` | None | engine profile by name, an ``engine`` table, or one of them per pool |
    | ``fleet`` | None | the whole ``fleet`` table of a replay spec instead |
    | ``initial_workers`` | 3 workers | workers at the start, per pool |
    | ``startup_s`` | None | seconds until a new worker is active; None: as engine or fleet say |
    | ``min_workers`` | 1 | fewest workers per pool, >= 1, per pool |
    | ``max_workers`` | 8 | most workers, per pool |
    | ``max_gpus`` | None | most GPUs of the fleet; an action that asks for more changes nothing |
    | ``gpu_hour_usd`` | None | price of a GPU-hour; None: the engine profile's, or 1 |
    | ``workload`` | None | preset, generator fields or a ``[workload]`` table; see below |
    | ``trace`` | None | trace file to play instead |
    | ``requests`` | None | a ``RequestTable`` to play instead (not JSON) |
    | ``split`` | None | "train", "validation" or "test": play that part of the workload |
    | ``blocks`` | None | split -> list of [start_s, end_s], for a trace; None: 60, 20, 20 % |
    | ``episode_s`` | None | length of the window of a trace that an episode plays |
    | ``tick_s`` | 30 | seconds between actions |
    | ``horizon_s`` | None | seconds after which an episode is truncated |
    | ``ttft_slo_ms`` | 500 | limit on the time to the first token, > 0 |
    | ``itl_slo_ms`` | 30 | limit on a request's mean gap between tokens, > 0 |
    | ``observation`` | "summary" | name, ``{"name": …, parameters}`` or object |
    | ``action`` | "targets" | likewise |
    | ``reward`` | "cost_slo" | likewise |
    | ``capture_details`` | False | keep requests, ticks, operations and token gaps for reports |
    | ``render_mode`` | None | "ansi": text, "rgb_array": pictures, "human": a window |

    A workload with a request that no worker can ever hold is refused when the environment is built,
    and so are limits that the fleet at its start does not keep.

    ``workload`` describes traffic that is generated anew in every episode. Any number in it may be
    a range that each episode draws from (:mod:`aisim_gym.envs.ranges`):
    ``{"kind": "chat-wave", "peak_rate_rps": {"uniform": [10, 20]}}``. With a ``seed`` in it, or
    ``trace_files``, the workload exists once and episodes play parts of it.

    ``reset(options=…)``, for one episode: ``episode`` (a number: the same traffic for everybody),
    ``trace`` (a file to play instead), ``start_s``, ``duration_s`` (play only the requests that
    arrive in this part of the traffic, from time 0) and the workers at the start:

    * ``workers``

    ## Version History

    * v0: provisional. The default engine is the reference polynomial, not a measured GPU; results
      of a seed may change without a new version until the environment library is complete.
    """

    kind = "agg"
    worker_options = {"workers": "num_workers"}  # noqa: RUF012
