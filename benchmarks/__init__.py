"""Benchmarks: each module measures one question and prints one table."""
