"""`python -m psph`: the same as `psph`."""

from psph.cli import main

main()
