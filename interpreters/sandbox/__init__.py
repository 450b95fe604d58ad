"""The cloud in one process: servers on this machine that stand for what the workers talk to."""
