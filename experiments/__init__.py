"""Experiments: one module per table or figure, all run and written down by the same runner.

They run the shipped cores in the simulator, never a model of them. docs/experiments.md shows
how to write one.
"""
