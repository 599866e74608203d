"""DNS: from a domain to what serves it, and keeping those records true."""
