"""``python -m aisim_gym``: the same as the command ``aisim-gym``."""

from aisim_gym.cli.main import run

if __name__ == "__main__":
    run()
