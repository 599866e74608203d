"""What runs the cores: the Environment contract, the simulator, asyncio over UDP, schedules.

Nothing is re-exported here on purpose: a core imports `runtime.environment` and must not
pull in asyncio or a socket with it.
"""
