"""Compile the kernel once, before several test processes would each need it."""

from aisim_gym.cli.main import app

if __name__ == "__main__":
    app(["warmup", "--all"])
