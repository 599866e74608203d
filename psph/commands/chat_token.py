"""`psph chat-token`: the token by which a PSPH knows a user of chat."""

from __future__ import annotations

from pathlib import Path

import click

from psph.errors import PsphError


@click.command("chat-token", short_help="Print the chat token of a user of a zone.")
@click.argument("jid")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The key of the user's zone, as psph zone-key makes it.",
)
def chat_token(jid: str, key_file: Path) -> None:
    """Print the token of JID, such as alice@example.com, for psph chat and other clients.

    It follows from the key of the zone: who has the key can make the tokens of all its users, and
    a token ends with the key. The table [chat] of a PSPH shuts single users out.
    """
    from bootstrap import BootstrapError
    from bootstrap.registration import zone_key
    from psph.chat.message import BadMessage, normal_jid
    from psph.chat.tokens import token_of

    try:
        user = normal_jid(jid)
    except BadMessage as error:
        raise click.UsageError(str(error)) from None
    try:
        key = zone_key.load(key_file).private
    except (BootstrapError, OSError, ValueError) as error:
        raise PsphError(str(error)) from None
    if key is None:
        raise PsphError(f"{key_file} has the public half of a key only, and tokens need the other")
    click.echo(token_of(key, user))
