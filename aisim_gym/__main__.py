"""``python -m aisim_gym`` is equivalent to the command ``aisim-gym``."""

from aisim_gym.cli.main import run

if __name__ == "__main__":
    run()
