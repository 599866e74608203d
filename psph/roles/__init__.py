"""The roles of `psph serve`, one module each; `process` is what the roles of a process share."""
