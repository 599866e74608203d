"""Metadata lives in pyproject.toml; this file only finds optional C accelerators.

Every ``_NAME.c`` inside a package is built as the extension module of that name
when a compiler is at hand. A build that fails is a warning, not an error: each
accelerator has a Python twin that its package falls back to.
"""

from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
PACKAGES = (
    "identifiers", "traces", "psirp_sim", "push_hub", "bootstrap", "mobility", "psph",
)  # fmt: skip

setup(
    ext_modules=[
        Extension(
            ".".join(source.relative_to(ROOT).with_suffix("").parts),
            [str(source.relative_to(ROOT))],
            depends=[str(header.relative_to(ROOT)) for header in sorted(ROOT.glob("*/*/*.h"))],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for package in PACKAGES
        for source in sorted((ROOT / package).rglob("_*.c"))
    ]
)
