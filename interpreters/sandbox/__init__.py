"""The cloud in one process: servers on this machine that stand for what the workers talk to."""

import os

# Else gRPC writes lines of its own beside what people and tests read; it looks at this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
