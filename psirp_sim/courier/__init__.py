"""Courier: messages between neighbours, each once and in order. The house's teaching protocol.

It is small enough to read in one sitting and has everything a core has: packets, timers,
durable state, bounds. `core` is the protocol, `traffic` an application of it for scenarios,
`suite` the fault schedules it must survive.
"""
