"""Who is who in the world of these tests."""

A, B, C = "site-a.test", "site-b.test", "site-c.test"
BLOG, SHOP = f"blog.{C}", f"shop.{C}"
"""Hosts of C that have PSPHs of their own; the one called C serves news only."""
PLAIN = "plain.test"
"""A zone without records of a fabric."""
LIAR = "liar.test"
"""A zone whose announcement is another zone's."""
PRIVATE = f"http://news.{B}/private/"
"""Stays at home."""
LARGEST = 2 << 20
"""Bytes of a version at B."""
