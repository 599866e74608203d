"""The embedded name server: authoritative for its own zones, and for nothing else.

The rules (`zone`, `reading`, `writing`, `signing`, `answering`, `updating`, `transferring`,
`authority`, `rates`) do no I/O; `keeping` and `serving` do.
"""
