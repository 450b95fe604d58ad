"""The whole system in one thread, from one seed: workers, orchestrator, stores, providers, clock and event bus.

Owns what the world may do to us (`faults`), and what must hold whatever it does (`invariants`). The programs, the rules, the
runtime and the performers are the production ones; only the ports behind them are simulated.
"""
