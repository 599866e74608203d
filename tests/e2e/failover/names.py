"""Names of the domains and PSPHs in these tests."""

A, B = "site-a.test", "site-b.test"
FIRST, SECOND = f"one.{A}", f"two.{A}"
"""The PSPHs of A."""
