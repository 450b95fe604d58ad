"""Benchmarks: each module answers one question with a table, and runs by itself: `python -m benchmarks.cold_start`."""

from __future__ import annotations

QUESTIONS = (
    "cloud_step",
    "paced_step",
    "embedded_step",
    "firestore_operations",
    "noop_events",
    "growing_events",
    "cold_start",
    "decisions",
    "memory",
    "throughput",
    "simulated_runs",
)
"""The modules that answer one, in the order they are asked."""
