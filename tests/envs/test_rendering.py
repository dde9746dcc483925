"""Text, pictures, windows and videos of episodes (env-checklist.md 10, 11)."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from aisim_gym.envs import ENTRY_POINTS, ScalingEnv
from aisim_gym.envs.episode_record import FIRST_CAPACITY, EpisodeRecord
from aisim_gym.envs.render_frame import TILES
from aisim_gym.workload import requests_from_arrays

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

EnvBuilder = Callable[..., ScalingEnv]

OVERLOAD = {"duration_s": 60.0, "base_rate_rps": 60.0, "peak_rate_rps": 60.0, "spike_at_s": None}

HEADLESS = {
    name: value
    for name, value in os.environ.items()
    if name not in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MPLBACKEND")
}


def least(env: ScalingEnv) -> Any:
    """Return the action that asks for the fewest workers."""
    return np.zeros(env.action_space.shape or (), np.int64)


def most(env: ScalingEnv) -> Any:
    """Return the action that asks for the most workers."""
    return np.full(env.action_space.shape or (), 7, np.int64)


def frame_of(env: gymnasium.Env[Any, Any]) -> NDArray[np.uint8]:
    frame: Any = env.render()
    assert isinstance(frame, np.ndarray)
    return frame


def record_of(env: ScalingEnv) -> EpisodeRecord:
    record = env._renderer._record
    assert record is not None
    return record


# Text


def test_text_fits_a_screen_and_says_the_time(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="ansi", max_workers=64, workload=OVERLOAD)
    env.reset(seed=1)
    for now_s in (10.0, 20.0, 30.0, 40.0):
        text = env.render()
        assert isinstance(text, str)
        lines = text.splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 100
        assert f"{now_s} s" in lines[0]
        env.step(least(env))


def test_text_and_frame_show_the_cost_so_far(env_id: str, make_env: EnvBuilder) -> None:
    """env-checklist.md 10: in GPU-hours and, at the price of each pool, in USD."""
    engine: Any = "h100-llama31-8b"
    if "Disaggregated" in env_id:
        engine = {"prefill": engine, "decode": "l40s-llama31-8b"}  # one is dearer
    text, pictures = (make_env(env_id, render_mode=m, engine=engine) for m in ("ansi", "rgb_array"))
    text.reset(seed=1)
    pictures.reset(seed=1)
    text.step(most(text))
    *_, info = pictures.step(most(pictures))
    assert info["total_gpu_usd"] > 1.05 * info["total_gpu_hours"] > 0.0
    hours, usd = f"{info['total_gpu_hours']:.3f}", f"{info['total_gpu_usd']:.2f}"
    assert f"{hours} GPU-hours, {usd} USD" in str(text.render())
    frame_of(pictures)
    painter: Any = pictures._renderer._painter
    captions = [caption for caption, _ in TILES]
    shown = [tile.get_text() for tile in painter._tiles]
    assert shown[captions.index("GPU-hours")] == hours
    assert shown[captions.index("USD so far")] == usd


# Frames


def test_frames_have_one_shape_all_through_the_episode(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    ended = False
    while not ended:
        frame = frame_of(env)
        assert frame.shape == (640, 960, 3)
        assert frame.dtype == np.uint8
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = terminated or truncated
    assert frame_of(env).shape == (640, 960, 3)


def test_equal_episodes_give_equal_frames_and_other_fleets_others(
    env_id: str, make_env: EnvBuilder
) -> None:
    ours, theirs, other = (make_env(env_id, render_mode="rgb_array") for _ in range(3))
    for env in (ours, theirs, other):
        env.reset(seed=3)
    assert np.array_equal(frame_of(ours), frame_of(other))
    for _ in range(3):
        ours.step(most(ours))
        theirs.step(most(theirs))
        other.step(least(other))
        assert np.array_equal(frame_of(ours), frame_of(theirs))
        assert np.array_equal(frame_of(ours), frame_of(ours))
        assert not np.array_equal(frame_of(ours), frame_of(other))


def test_frame_depends_on_the_episode_only_not_on_frames_before(
    env_id: str, make_env: EnvBuilder
) -> None:
    seen, fresh = (make_env(env_id, render_mode="rgb_array", tick_s=0.5) for _ in range(2))
    seen.reset(seed=9)
    seen.step(most(seen))
    frame_of(seen)
    for env in (seen, fresh):
        env.reset(seed=3)
    for i in range(70):  # long enough for the time axis to change
        seen.step(most(seen))
        fresh.step(most(fresh))
        if i % 10 == 0:
            frame_of(seen)
    assert np.array_equal(frame_of(seen), frame_of(fresh))


def test_frames_are_the_callers(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    frame = frame_of(env)
    before = frame.copy()
    env.step(most(env))
    frame_of(env)
    assert np.array_equal(frame, before)
    frame[:] = 0
    assert frame_of(env).any()


@pytest.mark.parametrize(
    "duplicate",
    [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy, lambda env: env.fork()],
    ids=["pickle", "deepcopy", "fork"],
)
def test_copy_takes_the_record_along_and_goes_on_by_itself(
    env_id: str, duplicate: Callable[[ScalingEnv], ScalingEnv], make_env: EnvBuilder
) -> None:
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    env.step(most(env))
    before = frame_of(env)
    twin = duplicate(env)
    assert np.array_equal(frame_of(twin), before)
    twin.step(least(twin))
    assert np.array_equal(frame_of(env), before)
    env.step(least(env))
    assert np.array_equal(frame_of(env), frame_of(twin))


def test_workload_that_ends_before_the_first_tick_is_drawn(
    env_id: str, make_env: EnvBuilder
) -> None:
    requests = requests_from_arrays(np.zeros(2), [300, 300], [20, 20])
    env = make_env(env_id, requests=requests, render_mode="rgb_array")
    env.reset(seed=1)
    first = frame_of(env)
    env.step(least(env))  # takes no time
    assert not np.array_equal(frame_of(env), first)  # results are counted in the step


def test_latency_beyond_the_axis_is_marked(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="rgb_array", workload=OVERLOAD)
    env.reset(seed=1)
    for _ in range(5):
        env.step(least(env))
    frame_of(env)
    painter: Any = env._renderer._painter
    ttft = painter._latencies[0]
    ratio = record_of(env).column("ttft_ms") / 500.0
    assert 0 < len(ttft.beyond.get_xdata()) == np.count_nonzero(ratio > 2.0)


def test_nothing_is_kept_without_pictures(env_id: str, make_env: EnvBuilder) -> None:
    for render_mode in (None, "ansi"):
        env = make_env(env_id, render_mode=render_mode)
        env.reset(seed=1)
        env.step(most(env))
        assert env._renderer._record is None


def test_record_says_what_info_and_snapshots_said(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="rgb_array", tick_s=0.5)
    _, info = env.reset(seed=1)
    targets, active = [env.snapshot.decode.num_non_draining], [len(env.snapshot.decode.active_ids)]
    for i in range(FIRST_CAPACITY + 6):  # more than the table holds at first
        *_, info = env.step(most(env) if i % 9 < 5 else least(env))
        targets.append(8 if i % 9 < 5 else 1)
        active.append(len(env.snapshot.decode.active_ids))
    record = record_of(env)
    pool = len(record.pool_names) - 1
    assert record.pool_column(pool, "target").tolist() == targets
    assert record.pool_column(pool, "active").tolist() == active
    assert record.column("arrived").sum() == info["total_arrived"]
    assert record.column("completed").sum() == info["total_completed"]
    assert record.column("good")[-1] == info["total_good"]
    assert record.column("gpu_hours")[-1] == info["total_gpu_hours"]
    assert record.column("gpu_usd")[-1] == info["total_gpu_usd"]
    in_flight = info["total_arrived"] - info["total_completed"] - info["total_rejected"]
    assert record.column("in_flight")[-1] == in_flight
    assert record.edges_s()[-1] == info["now_s"]


# Matplotlib


def test_users_style_does_not_change_frames_nor_frames_the_settings(
    env_id: str, make_env: EnvBuilder
) -> None:
    """Case F40: frames come from nowhere but the episode."""
    import matplotlib
    from matplotlib import style

    plain, styled = (make_env(env_id, render_mode="rgb_array") for _ in range(2))
    plain.reset(seed=1)
    styled.reset(seed=1)
    expected = frame_of(plain)
    with matplotlib.rc_context():
        style.use("dark_background")
        matplotlib.rcParams["font.size"] = 20.0
        settings = dict(matplotlib.rcParams)
        assert np.array_equal(frame_of(styled), expected)
        assert dict(matplotlib.rcParams) == settings


def test_pyplot_keeps_its_figures(env_id: str, make_env: EnvBuilder) -> None:
    """Case F40: no figure is left behind."""
    import matplotlib.pyplot as plt

    figures = plt.get_fignums()
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    frame_of(env)
    assert plt.get_fignums() == figures


def test_frames_need_neither_display_nor_pyplot() -> None:
    """Cases F39 and F40: a process without DISPLAY and MPLBACKEND, as on a server."""
    code = (
        "import sys, gymnasium\n"
        "env = gymnasium.make('aisim_gym.envs:aisim_gym/Aggregated-v0', render_mode='rgb_array')\n"
        "env.reset(seed=1)\n"
        "assert not any(name.startswith('matplotlib') for name in sys.modules)\n"
        "print(env.render().shape, 'matplotlib.pyplot' in sys.modules, 'pygame' in sys.modules)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=HEADLESS, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(640, 960, 3) False False\n", "")


def test_missing_matplotlib_is_told_with_the_extra(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'aisim-gym\[plot\]'"):
        env.render()


# Gymnasium's conventions


def test_class_lists_all_modes_and_an_environment_those_that_work(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    creator: Any = load_env_creator(ENTRY_POINTS[env_id])
    assert creator.metadata["render_modes"] == ["human", "rgb_array", "ansi"]
    assert creator.metadata["render_fps"] == 4
    assert make_env(env_id).metadata["render_modes"] == ["ansi", "rgb_array"]
    assert "human" in make_env(env_id, render_mode="human").metadata["render_modes"]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert make_env(env_id).metadata["render_modes"] == ["ansi"]


def test_unknown_render_mode_is_refused() -> None:
    allowed = "human, rgb_array, ansi"
    with pytest.raises(
        ValueError, match=f"render_mode: got 'video', expected None or one of: {allowed}"
    ):
        ScalingEnv(render_mode="video")


@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasium_checker_renders_without_a_display(
    env_id: str,
    render_mode: str | None,
    make_env: EnvBuilder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in set(os.environ) - set(HEADLESS):
        monkeypatch.delenv(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(env_id, render_mode=render_mode))


def test_stable_baselines3_checker_renders(env_id: str, make_env: EnvBuilder) -> None:
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make_env(env_id, render_mode="rgb_array"), skip_render_check=False)


def test_render_without_a_mode_warns_and_names_the_id(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id)
    env.reset(seed=1)
    with pytest.warns(UserWarning, match=env_id):
        assert env.render() is None


@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array", "human"])
def test_render_needs_an_episode(env_id: str, render_mode: str, make_env: EnvBuilder) -> None:
    wrapped = gymnasium.make(env_id, render_mode=render_mode)
    with pytest.raises(ResetNeeded):
        wrapped.render()
    env = make_env(env_id, render_mode=render_mode)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        env.render()
    env.close()
    env.close()
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        env.render()


def test_closed_environment_renders_again_after_a_reset(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    before = frame_of(env)
    env.close()
    with pytest.raises(ResetNeeded):
        env.render()
    env.reset(seed=1)
    assert np.array_equal(frame_of(env), before)


def test_list_mode_collects_the_frames_of_every_step(env_id: str) -> None:
    env = gymnasium.make(env_id, render_mode="rgb_array_list")
    env.reset(seed=1)
    for _ in range(2):
        env.step(env.action_space.sample())
    frames: Any = env.render()
    assert [frame.shape for frame in frames] == [(640, 960, 3)] * 3
    assert env.render() == []


def test_vector_environment_renders_each_of_its_own(env_id: str) -> None:
    vector = gymnasium.make_vec(
        env_id, num_envs=2, vectorization_mode="sync", render_mode="rgb_array"
    )
    vector.reset(seed=5)
    frames: Any = vector.render()
    assert [frame.shape for frame in frames] == [(640, 960, 3)] * 2
    assert not np.array_equal(*frames)
    vector.close()


# Videos


def test_record_video_writes_a_video_that_opens(env_id: str, tmp_path: Path) -> None:
    """Case F40: Gymnasium's RecordVideo on a machine without a display."""
    pytest.importorskip("moviepy", reason="moviepy is not installed")
    from gymnasium.wrappers import RecordVideo

    pictures = gymnasium.make(env_id, render_mode="rgb_array")
    env: gymnasium.Env[Any, Any] = RecordVideo(pictures, str(tmp_path / "with space"), fps=10)
    env.reset(seed=1)
    for _ in range(9):
        env.step(env.action_space.sample())
    env.close()
    (path,) = (tmp_path / "with space").iterdir()
    num_frames, duration_s = import_module("imageio_ffmpeg").count_frames_and_secs(str(path))
    assert (num_frames, duration_s) == (10, 1.0)


# Windows


def test_window_shows_every_step_by_itself(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pygame = pytest.importorskip("pygame", reason="pygame is not installed")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env, pictures = (make_env(env_id, render_mode=mode) for mode in ("human", "rgb_array"))
    env.reset(seed=1)
    pictures.reset(seed=1)
    for _ in range(2):
        shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        assert np.array_equal(shown, frame_of(pictures))
        env.step(most(env))
        pictures.step(most(pictures))
    assert env.render() is None
    env.close()
    assert pygame.display.get_surface() is None
    env.close()


def test_fork_to_look_ahead_opens_no_window(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pygame = pytest.importorskip("pygame", reason="pygame is not installed")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = make_env(env_id, render_mode="human")
    env.reset(seed=1)
    window = pygame.display.get_surface()
    shown = pygame.surfarray.array3d(window)
    fork = env.fork()
    fork.step(most(fork))
    assert fork.render_mode == "rgb_array"
    assert frame_of(fork).shape == (640, 960, 3)
    assert np.array_equal(pygame.surfarray.array3d(window), shown)
    fork.close()
    assert pygame.display.get_surface() is window
    env.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there always is a display")
def test_window_without_a_display_is_a_clear_error() -> None:
    """Case F39: an exception, not a crash, and not a window that nobody sees."""
    pytest.importorskip("pygame", reason="pygame is not installed")
    code = (
        "import gymnasium\n"
        "env = gymnasium.make('aisim_gym.envs:aisim_gym/Aggregated-v0', render_mode='human')\n"
        "try:\n"
        "    env.reset(seed=1)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "env.close()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=HEADLESS, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "render_mode 'human' needs a display" in done.stdout
    assert "use 'rgb_array' for images or 'ansi' for text" in done.stdout


def test_missing_pygame_is_told_with_the_extra(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(env_id, render_mode="human")
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ImportError, match=r"pip install 'aisim-gym\[human\]'"):
        env.reset(seed=1)
