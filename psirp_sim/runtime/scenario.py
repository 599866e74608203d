"""A simulated world written down in TOML: nodes, links, faults. docs/simulator.md has every key.

This module knows what may stand in such a file and builds the world; reading the file and
showing the result is the command line's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import msgspec

from psirp_sim.runtime.durations import MILLISECOND, format_duration, parse_duration
from psirp_sim.runtime.environment import CoreFactory
from psirp_sim.runtime.schedules.faults import FaultKind, network_faults, node_faults
from psirp_sim.runtime.simulator import (
    PRESETS,
    Clock,
    Constant,
    Delay,
    Exponential,
    GilbertElliott,
    Independent,
    LinkProfile,
    Simulator,
    Traced,
    Uniform,
)

Protocol = Callable[[Mapping[str, object]], CoreFactory]
"""From the settings of a node to its core; raises ValueError when they are wrong."""

MOST_NODES = 10_000
MOST_SECONDS = 7 * 24 * 3600
LONGEST_TRACE = 1 << 20
"""Characters read of a file of delays."""


class ScenarioError(ValueError):
    """A scenario that cannot be built; the message names the part."""


class ClockSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How wrong a node's clock is."""

    skew_ms: float = 0.0
    drift_ppm: float = 0.0

    def __post_init__(self) -> None:
        if not abs(self.drift_ppm) <= 100_000 or not abs(self.skew_ms) <= MOST_SECONDS * 1_000:
            raise ValueError("a clock drifts by at most 100000 ppm, and is off by at most a week")


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node, or with `count` a row of them named name1, name2, ..."""

    name: str
    protocol: str
    count: int | None = None
    settings: dict[str, object] = {}
    clock: ClockSpec = ClockSpec()

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set(">= "):
            raise ValueError("a node's name is not empty and has no blank, > or = in it")
        if self.count is not None and not 1 <= self.count <= MOST_NODES:
            raise ValueError(f"count lies between 1 and {MOST_NODES}")


class DelaySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A delay that varies; exactly one of the forms."""

    uniform: list[str] | None = None
    exponential: list[str] | None = None
    trace: list[str] | None = None
    trace_file: str | None = None

    def __post_init__(self) -> None:
        given = [getattr(self, name) for name in self.__struct_fields__]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give one of uniform, exponential, trace and trace_file")
        for pair in (self.uniform, self.exponential):
            if pair is not None and len(pair) != 2:
                raise ValueError("uniform takes [least, most], exponential takes [least, mean]")
        for text in (self.uniform or []) + (self.exponential or []) + (self.trace or []):
            parse_duration(text)


class BurstSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Loss in bursts (Gilbert-Elliott)."""

    to_bad: float
    to_good: float
    loss_in_bad: float = 1.0
    loss_in_good: float = 0.0

    def __post_init__(self) -> None:
        _check_probabilities(**{name: getattr(self, name) for name in self.__struct_fields__})


class DirectionSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one direction of a link behaves; what is not given is the preset's, or the default."""

    delay: str | DelaySpec | None = None
    bandwidth: int | None = None
    queue: int | None = None
    loss: float | BurstSpec | None = None
    duplicate: float | None = None
    reorder: float | None = None
    reorder_by: str | None = None
    mtu: int | None = None

    def __post_init__(self) -> None:
        for text in (self.delay, self.reorder_by):
            if isinstance(text, str):
                parse_duration(text)
        _check_probabilities(
            loss=self.loss if isinstance(self.loss, float | int) else None,
            duplicate=self.duplicate,
            reorder=self.reorder,
        )
        for name in ("bandwidth", "queue", "mtu"):
            value = getattr(self, name)
            least = 128 if name == "mtu" else 1
            if value is not None and value < least:
                raise ValueError(f"{name} is at least {least}")


class LinkSpec(DirectionSpec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A link between two nodes; with a preset the first is the mobile end."""

    between: list[str]
    preset: str | None = None
    back: DirectionSpec | None = None
    """The other direction, where it differs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.between) != 2:
            raise ValueError("between names two nodes")
        if self.preset is not None and self.preset not in PRESETS:
            raise ValueError(f"there is no preset {self.preset!r}; there is: {', '.join(PRESETS)}")


class FaultSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that goes wrong for a while."""

    at: str
    lasts: str
    kind: Literal["crash", "pause", "cut", "partition", "storm"]
    target: str

    def __post_init__(self) -> None:
        parse_duration(self.at)
        parse_duration(self.lasts)


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    duration: str
    node: list[NodeSpec]
    link: list[LinkSpec] = []
    fault: list[FaultSpec] = []
    title: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < parse_duration(self.duration) <= MOST_SECONDS * 1_000 * MILLISECOND:
            raise ValueError(f"duration lies between 1 ns and {MOST_SECONDS} s")

    def build(
        self, protocols: Mapping[str, Protocol], directory: Path, seed: int | None = None
    ) -> Simulator:
        """The world at its beginning, faults included; files are relative to the directory."""
        world = Simulator(self.seed if seed is None else seed)
        for node in self.node:
            self._add_node(world, node, protocols)
        for link in self.link:
            preset = PRESETS[link.preset] if link.preset else None
            one, other = link.between
            with _naming(f"link between {one} and {other}"):
                there = _profile(link, preset.up if preset else LinkProfile(), directory)
                back = _profile(link, preset.down if preset else LinkProfile(), directory)
                if link.back is not None:
                    back = _profile(link.back, back, directory)
                world.add_link(one, other, there, back)
        kinds = {
            kind.name: kind
            for kind in [
                *node_faults(world, world.nodes),
                *network_faults(world, world.channels),
            ]
        }
        for fault in self.fault:
            self._add_fault(world, fault, kinds[fault.kind])
        return world

    def _add_node(
        self, world: Simulator, node: NodeSpec, protocols: Mapping[str, Protocol]
    ) -> None:
        if node.protocol not in protocols:
            raise ScenarioError(
                f"node {node.name}: there is no protocol {node.protocol!r}; "
                f"there is: {', '.join(protocols)}"
            )
        clock = Clock(round(node.clock.skew_ms * MILLISECOND), round(node.clock.drift_ppm * 1_000))
        names = [node.name]
        if node.count is not None:
            names = [f"{node.name}{number}" for number in range(1, node.count + 1)]
        for name in names:
            with _naming(f"node {name}"):
                world.add_node(name, protocols[node.protocol](node.settings), clock)

    def _add_fault(self, world: Simulator, fault: FaultSpec, kind: FaultKind) -> None:
        if fault.target not in kind.targets:
            few = ", ".join(kind.targets[:8])
            raise ScenarioError(
                f"fault {fault.kind} at {fault.at}: no target {fault.target!r}; write one of {few}"
            )
        begin = parse_duration(fault.at)
        world.engine.at(begin, kind.begin, fault.target)
        world.engine.at(begin + parse_duration(fault.lasts), kind.end, fault.target)


def summary(world: Simulator) -> dict[str, object]:
    """What a run came to, for tables and JSON."""
    return {
        "seed": world.seed,
        "digest": world.digest(),
        "virtual_time": format_duration(world.now),
        "events": world.steps,
        "nodes": [
            {"node": name, "up": node.up, **_counters(node.core)}
            for name, node in world.nodes.items()
        ],
        "links": [
            {"link": channel.title, **asdict(channel.counters)}
            for channel in world.channels.values()
        ],
    }


def _counters(core: object) -> Mapping[str, int]:
    counters = getattr(core, "counters", None)
    return counters() if callable(counters) else {}


def _profile(spec: DirectionSpec, base: LinkProfile, directory: Path) -> LinkProfile:
    changes: dict[str, object] = {}
    if spec.delay is not None:
        changes["delay"] = _delay(spec.delay, directory)
    if spec.loss is not None:
        changes["loss"] = (
            GilbertElliott(**msgspec.structs.asdict(spec.loss))
            if isinstance(spec.loss, BurstSpec)
            else Independent(spec.loss)
        )
    if spec.reorder_by is not None:
        changes["reorder_by"] = parse_duration(spec.reorder_by)
    for name in ("bandwidth", "queue", "duplicate", "reorder", "mtu"):
        if (value := getattr(spec, name)) is not None:
            changes[name] = value
    return replace(base, **changes)  # type: ignore[arg-type]  # each value was checked above


def _delay(spec: str | DelaySpec, directory: Path) -> Delay:
    if isinstance(spec, str):
        return Constant(parse_duration(spec))
    if spec.uniform is not None:
        low, high = map(parse_duration, spec.uniform)
        if low > high:
            raise ScenarioError("uniform takes the least delay first")
        return Uniform(low, high)
    if spec.exponential is not None:
        least, mean = map(parse_duration, spec.exponential)
        return Exponential(least, mean)
    lines = spec.trace
    if lines is None:
        path = directory / str(spec.trace_file)
        try:
            with path.open() as file:
                lines = file.read(LONGEST_TRACE).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"trace_file {path}: {error}") from error
    values = [parse_duration(line) for line in lines if line.strip()]
    if not values:
        raise ScenarioError("a delay trace has at least one value")
    return Traced(values)


@contextmanager
def _naming(part: str) -> Iterator[None]:
    """Says which part of the file an error is about."""
    try:
        yield
    except ValueError as error:
        raise ScenarioError(f"{part}: {error}") from error


def _check_probabilities(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} is a probability, between 0 and 1")
