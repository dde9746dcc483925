"""Benchmarks: against the reference, against itself, and for growing fleets and runs.

``aisim-gym bench`` runs the sections listed in :mod:`aisim_gym.bench.sections`.
``docs/benchmarks.md`` describes what each measures and what both sides of a comparison include.
"""
