"""Facades bind a protocol of the web to the proxy: requests become wishes, updates pushes."""
