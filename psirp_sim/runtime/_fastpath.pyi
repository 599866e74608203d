from array import array
from typing import final

Row = tuple[int, tuple[bytes, ...], tuple[int, ...], bytes | None]
LinkAddress = tuple[str, int, bytes, int, int, int]
Pairs = list[tuple[str, bytes]]
Knocks = list[tuple[bytes, bytes, int, int]]

@final
class Driver:
    def __new__(cls, fd: int, remembered: int) -> Driver: ...
    def install(
        self,
        links: tuple[str, ...],
        bloom: tuple[Row, ...],
        exact: tuple[Row, ...],
        counters: array[int],
        /,
    ) -> None: ...
    def set_links(self, links: tuple[LinkAddress, ...], /) -> None: ...
    def drain(
        self, limit: int, blocked: bool, knocks: int, /
    ) -> tuple[Pairs, Pairs, Knocks, int, int, int, int, int]: ...
    def inject(self, packet: bytes, blocked: bool, /) -> tuple[bool, Pairs, int, int, int]: ...
    def decide(self, packet: bytes, arrived: int, /) -> int | tuple[tuple[int, ...], bool]: ...
