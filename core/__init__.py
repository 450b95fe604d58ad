"""Decisions: pure functions of documents, settings, outcomes and the clock's last word.

Owns every rule of the contracts. Must not touch files, sockets, clocks, randomness, logs or the environment.
"""
