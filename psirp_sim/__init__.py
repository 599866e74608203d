"""The information-centric network (PSIRP): protocol cores, and `runtime/` that runs them."""
