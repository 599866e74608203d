"""The sub-commands that psph itself brings, one module each."""
