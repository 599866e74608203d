"""`psph chat` and `psph chat-token`, as processes beside a real PSPH's chat."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from bootstrap.registration import zone_key
from psph import cli
from psph.chat.tokens import token_of
from tests.e2e.serving import PSPH
from tests.ports import free_port
from tests.psph.chat.room import ALICE, BOB, EVE, KEY, room
from tests.push_hub.world import run, until


@dataclass
class Talker:
    """A running `psph chat`."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(self, *texts):
        for text in texts:
            self.process.stdin.write(f"{text}\n".encode())

    async def end(self, code=0):
        """End of input; it leaves by itself."""
        self.process.stdin.close()
        await self.left(code)

    async def left(self, code=0):
        async with asyncio.timeout(60):
            assert await self.process.wait() == code, self.notes


@asynccontextmanager
async def talking(me, other, *hubs, token=None, more=()):
    environment = {**os.environ, "PSPH_CHAT_TOKEN": token_of(KEY, me) if token is None else token}
    given = [part for hub in hubs for part in ("--hub", hub)]
    process = await asyncio.create_subprocess_exec(
        *PSPH, "chat", me, "--with", other, *given, *more, env=environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    talker = Talker(process)

    async def read(stream, into):
        while line := await stream.readline():
            into.append(line.decode().rstrip("\n"))

    reading = [
        asyncio.create_task(read(process.stdout, talker.lines)),
        asyncio.create_task(read(process.stderr, talker.notes)),
    ]
    try:
        yield talker
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.gather(*reading)


def test_two_talk_line_by_line(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            async with (
                talking(ALICE, BOB, chat.url) as alice,
                talking(BOB, ALICE, f"{chat.url}/hub", more=["--stay", "60"]) as bob,
            ):
                alice.say("hello", "", "ha", "ha", "\x9b31mred")
                await until(lambda: len(bob.lines) == 4, "what alice said")
                expected = [f"{ALICE}: {said}" for said in ("hello", "ha", "ha", "\\x9b31mred")]
                assert bob.lines == expected
                bob.say("hi")
                await until(lambda: f"{BOB}: hi" in alice.lines, "what bob said")
                assert f"{BOB} is here" in alice.notes
                await alice.end()
                assert alice.lines == [*expected, f"{BOB}: hi"]
                bob.process.send_signal(signal.SIGTERM)
                await bob.left()
            async with talking(BOB, ALICE, chat.url, more=["--history", "2"]) as again:
                await until(lambda: len(again.lines) >= 3, "the history")
                again.process.send_signal(signal.SIGINT)
                await again.left()
                assert again.lines == [f"{ALICE}: ha", f"{ALICE}: \\x9b31mred", f"{BOB}: hi"]

    run(story())


def test_nothing_is_lost_or_twice_when_the_psph_dies(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    async def story():
        async with talking(ALICE, BOB, url) as alice, talking(BOB, ALICE, url) as bob:
            alice.say("before it is there")
            await until(lambda: alice.notes and bob.notes, "a word about that")
            assert alice.notes == [f"no connection to {url} (Connection refused); trying again"]
            for life in range(3):
                async with room(tmp_path, port=port):
                    await until(lambda life=life: len(bob.lines) == 1 + 2 * life, "what waited")
                    alice.say(f"in life {life}")
                    await until(lambda life=life: len(bob.lines) == 2 + 2 * life, "what is new")
                alice.say(f"after life {life}")
            async with room(tmp_path, port=port):
                await alice.end()
                await until(lambda: len(bob.lines) == 7, "the last")
                await bob.end()
        said = [f"{n} life {life}" for life in range(3) for n in ("in", "after")]
        assert bob.lines == [f"{ALICE}: {each}" for each in ("before it is there", *said)]
        assert alice.lines == bob.lines
        assert sum("trying again" in each for each in bob.notes) == 4

    run(story())


def test_another_psph_is_tried_when_one_is_dead(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            dead = f"http://127.0.0.1:{free_port()}"
            async with talking(ALICE, BOB, dead, chat.url, more=["--json"]) as alice:
                alice.say("hello")
                await alice.end()
                events = [json.loads(line) for line in alice.lines]
                assert [each["event"] for each in events] == [
                    "disconnected", "connected", "presence", "message",
                ]  # fmt: skip
                assert events[0]["hub"] == dead
                assert events[1] == {"event": "connected", "hub": chat.url, "again": True}
                assert events[3]["text"] == "hello"

    run(story())


def test_what_a_psph_took_before_it_died_is_sent_to_the_next_ahead_of_the_rest(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    async def story():
        async with AsyncExitStack() as life, room(tmp_path / "two") as two:
            one = await life.enter_async_context(room(tmp_path / "one"))
            async with talking(ALICE, BOB, one.url, two.url, more=["--json"]) as alice:
                alice.say("first", "second")
                await until(lambda: any("second" in each for each in alice.lines), "her messages")
                await life.aclose()  # before anybody else has them
                alice.say("third")
                await alice.end()
                events = [json.loads(line) for line in alice.lines]
            async with two.listen(BOB, ALICE) as bob:
                await until(lambda: len(bob.texts) == 3, "all of them")
                assert bob.texts == ["first", "second", "third"]
            said = [each for each in events if each["event"] == "message"]
            assert [each["text"] for each in said] == bob.texts
            assert [each["id"] for each in said] == [each["id"] for each in bob.of("message")]
            (lost,) = [each for each in events if each["event"] == "disconnected"]
            assert lost["reason"] in ("it closed the stream", "it closed the connection")

    run(story())


def test_a_token_is_asked_for_where_there_is_none(tmp_path):
    (tmp_path / "trusting").mkdir()
    (tmp_path / "other").mkdir()

    async def story():
        async with (
            room(tmp_path / "trusting", trust=["127.0.0.1"]) as chat,
            talking(ALICE, BOB, chat.url, token="") as alice,
        ):
            alice.say("hello")
            await alice.end()
            assert alice.lines == [f"{ALICE}: hello"]
        async with (
            room(tmp_path / "other") as chat,
            talking(ALICE, BOB, chat.url, token="") as alice,
        ):
            await alice.left(1)
            assert alice.notes == [
                "psph: 127.0.0.1 is not in chat.trust: get your token from whoever runs this PSPH"
                " (psph chat-token)"
            ]

    run(story())


def test_a_message_that_cannot_be_sent_is_named_and_the_next_is_sent(tmp_path):
    async def story():
        async with room(tmp_path) as chat, talking(ALICE, BOB, chat.url) as alice:
            alice.say("x" * 9_000, "short")
            await alice.end()
            assert alice.lines == [f"{ALICE}: short"]
            assert any("not sent: xxx" in each and "at most" in each for each in alice.notes)

    run(story())


def test_who_is_faster_than_allowed_is_only_slowed_down(tmp_path):
    async def story():
        async with (
            room(tmp_path, messages_per_s=2) as chat,
            talking(ALICE, BOB, chat.url) as alice,
        ):
            alice.say(*(f"{number}" for number in range(22)))
            await alice.end()
            assert alice.lines == [f"{ALICE}: {number}" for number in range(22)]

    run(story())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["alice", "--with", BOB], 2, "not complete"),
        ([ALICE, "--with", "bob"], 2, "not complete"),
        ([ALICE, "--with", ALICE, "--hub", "http://127.0.0.1:9"], 2, "talk to themselves"),
        ([ALICE], 2, "--with"),
        ([ALICE, "--with", BOB, "--hub", "ftp://x"], 2, "--hub"),
        ([ALICE, "--with", BOB, "--dns", "nowhere:x"], 2, "--dns"),
        ([ALICE, "--with", BOB, "--history", "1001"], 2, "--history"),
        ([ALICE, "--with", BOB, "--token-file", "no-such-file"], 1, "no-such-file has no token"),
    ],
)
def test_what_cannot_be_is_one_line(capsys, arguments, code, said):
    assert cli.run(["chat", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("me", "token"), [(EVE, None), (ALICE, "wrong")])
def test_who_is_refused_is_told_why(tmp_path, me, token):
    async def story():
        async with room(tmp_path) as chat, talking(me, BOB, chat.url, token=token) as eve:
            await eve.left(1)
            assert len(eve.notes) == 1
            assert "not" in eve.notes[0]

    run(story())


def test_a_token_follows_from_the_key_of_the_zone(tmp_path, capsys):
    key = zone_key.make(tmp_path / "zone.key")
    (tmp_path / "public").write_text(key.public_pem())

    def token(who, file):
        code = cli.run(["chat-token", who, "--key-file", str(tmp_path / file)])
        return code, *capsys.readouterr()

    assert token("Alice@Site-A.test", "zone.key") == (0, token_of(key.private, ALICE) + "\n", "")
    code, out, err = token(ALICE, "public")
    assert (code, out, "public half" in err) == (1, "", True)
    code, out, err = token(ALICE, "none")
    assert (code, out, err.count("\n")) == (1, "", 1)
    code, out, err = token("alice", "zone.key")
    assert (code, out, err.count("\n")) == (2, "", 1)


# In a terminal

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78])")


class Terminal:
    """A pseudo-terminal with `psph chat` in it."""

    def __init__(self, process, control):
        self.process, self._control, self.raw = process, control, b""

    def take(self):
        try:
            self.raw += os.read(self._control, 65_536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._control)

    def type(self, text):
        with suppress(OSError):  # it has left
            os.write(self._control, text.encode())

    @property
    def text(self):
        return ESCAPES.sub("", self.raw.decode(errors="replace"))


@asynccontextmanager
async def terminal(me, other, hub):
    control, inside = pty.openpty()
    environment = {
        **os.environ, "PSPH_CHAT_TOKEN": token_of(KEY, me), "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *PSPH, "chat", me, "--with", other, "--hub", hub, env=environment,
        stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    found, loop = Terminal(process, control), asyncio.get_running_loop()
    loop.add_reader(control, found.take)
    try:
        yield found
    finally:
        loop.remove_reader(control)
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(control)


@pytest.mark.parametrize("leave", ["\x03", "\x04"])
def test_in_a_terminal_messages_arrive_while_one_writes(tmp_path, leave):
    async def story():
        async with room(tmp_path) as chat:
            await chat.send(BOB, ALICE, "before")
            async with terminal(ALICE, BOB, chat.url) as screen:
                ending = asyncio.create_task(screen.process.wait())
                await until(lambda: "before" in screen.text and ">" in screen.text, "the prompt")
                screen.type("half-a-li")
                await until(lambda: "half-a-li" in screen.text, "what is typed")
                await chat.send(BOB, ALICE, "evil \x1b[2J \x9b2J \u202e <b>")
                await until(
                    lambda: "evil \ufffd[2J \\x9b2J \\u{202e} <b>" in screen.text, "a message"
                )
                screen.type("ne\r")
                async with chat.listen(BOB, ALICE) as bob:
                    await until(lambda: "half-a-line" in bob.texts, "the whole line")
                    await until(
                        lambda: re.search(r"alice  half-a-line", screen.text), "her own message"
                    )
                    await until(lambda: f"{BOB} is here" in screen.text, "bob's coming")
                # While a message is drawn the terminal takes such keys for itself.
                for _ in range(120):
                    screen.type(leave)
                    done = (await asyncio.wait({ending}, timeout=0.5))[0]
                    if done:
                        break
                assert ending.result() == 0
            assert not set("\x9b\u202e") & set(screen.raw.decode())
            assert "Traceback" not in screen.text

    run(story())
