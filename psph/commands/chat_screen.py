"""`psph chat` in a terminal: messages arrive above, the line one writes stays at the bottom."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import print_formatted_text
from prompt_toolkit.styles import Style

from psph.chat import showing
from psph.chat.events import ChatEvent, Connected, Disconnected, Missed, NotSent, Present, Said
from psph.chat.message import BadMessage

if TYPE_CHECKING:
    from psph.chat.client import ChatClient

_STYLE = Style.from_dict(
    {
        "time": "ansibrightblack",
        "me": "ansigreen bold",
        "other": "ansicyan bold",
        "note": "ansibrightblack",
        "trouble": "ansired",
        "here": "ansigreen",
        "away": "ansibrightblack",
        "bottom-toolbar": "noreverse ansibrightblack",
    }
)


class Screen:
    """What one sees, and where one writes."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._states: dict[str, str] = {}
        self._connected = False
        # What was written disappears, and comes back as a message when the PSPH has it.
        self._session: PromptSession[str] = PromptSession(
            style=_STYLE,
            history=InMemoryHistory(),
            erase_when_done=True,
            bottom_toolbar=self._toolbar,
        )

    async def run(self) -> None:
        """Until Ctrl-C or Ctrl-D."""
        with patch_stdout(raw=True):
            while True:
                try:
                    text = await self._session.prompt_async("> ", handle_sigint=False)
                except (EOFError, KeyboardInterrupt):
                    return
                if not text.strip():
                    continue
                try:
                    self._client.say(text)
                except BadMessage as error:
                    self.show(NotSent(text, str(error)))
                await asyncio.sleep(0)  # the message may be there before the next prompt

    def show(self, event: ChatEvent) -> None:
        """Above the line one writes."""
        match event:
            case Said():
                self._said(event)
            case Present(jid, state, _):
                known = self._states.get(jid)
                self._states[jid] = state
                if known != state and (known is not None or state == "here"):
                    self._note(f"{showing.one_line(jid)} is {state}")
            case Connected(_, again):
                self._connected = True
                if again:
                    self._note("connected again")
            case Disconnected():
                self._connected = False
                self._note(showing.plain(event)[0])
            case Missed() | NotSent():
                self._print([("class:trouble", showing.plain(event)[0])])
        self._session.app.invalidate()

    def _said(self, event: Said) -> None:
        mine = event.sender == self._client.me
        name = showing.short_name(event.sender, [self._client.me, *self._client.buddies])
        when = showing.time_of(event.at)
        first, *more = showing.lines(event.text)
        indent = " " * (len(when) + len(name) + 4)
        parts = [("class:time", f"{when}  "), ("class:me" if mine else "class:other", name)]
        parts.append(("", f"  {first}"))
        parts += [("", f"\n{indent}{line}") for line in more]
        self._print(parts)

    def _note(self, text: str) -> None:
        self._print([("class:note", text)])

    def _print(self, parts: list[tuple[str, str]]) -> None:
        print_formatted_text(FormattedText(parts), style=_STYLE)

    def _toolbar(self) -> FormattedText:
        parts: list[tuple[str, str]] = []
        for jid in self._client.buddies:
            state = self._states.get(jid, "away")
            sign = "●" if state == "here" else "○"
            parts.append((f"class:{state}", f"{sign} {showing.one_line(jid)} is {state}"))
        if not self._connected:
            parts.append(("class:trouble", "  not connected"))
        if self._client.waiting:
            parts.append(("", f"  {self._client.waiting} waiting to be sent"))
        parts.append(("", "  Ctrl-C leaves"))
        return FormattedText(parts)
