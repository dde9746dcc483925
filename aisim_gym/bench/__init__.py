"""How fast this package is: against the reference, against itself, and as fleets and runs grow.

``aisim-gym bench`` runs the sections that :mod:`aisim_gym.bench.sections` lists.
``docs/benchmarks.md`` says what each of them measures and what both sides of a comparison cover.
"""
