"""Benchmarks: one module each, run side by side with a reference so that ratios mean something.

A benchmark is a function without arguments, found by its name through the entry points
`psph.benchmarks`, that returns `{"ratios": {...}, "figures": {...}, "notes": [...]}`. A ratio
above 1 means that we are ahead of, or cheaper than, the reference. RESULTS.md keeps the last
figures and how they were obtained.
"""
