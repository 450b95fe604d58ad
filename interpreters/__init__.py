"""The world: documents, objects, HTTP, clock, logs, and the loop that performs effects.

Owns every touch of the outside. Must not decide anything about the business.
"""

import os

# Else gRPC writes lines of its own beside the log; it looks at this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
