"""`carpal hand shell|cp|forward|view`: a person in a hand, from their own machine.

Not for the machine that the hand is on: they go through a brain, as the
operator, and the owner of that machine has the last word.
"""

import asyncio

import click

from carpal.ids import check_id
from carpal.operator.connection import Found, operator_options


@click.command()
@click.argument("where", metavar="SESSION[:HAND]")
@click.option("--command", "-c", default="", help="Run this instead, and end with its exit code.")
@click.option("--tty/--no-tty", default=None, help="With a terminal, or with pipes.  [as it is]")
@click.option("--beside", is_flag=True, help="Do not take control: calls go on beside you.")
@operator_options
def shell(found: Found, where: str, command: str, tty: bool | None, beside: bool) -> int:
    """Open a shell in a hand of a session.

    You have control meanwhile: calls of that hand that have not begun wait until you leave, and
    the session's log says that you were there. Leave with `exit`, or `~.` at the beginning of a
    line. All that you started in the hand ends with it.
    """
    from hands.visit.shell import shell as serve

    session_id, hand = _where(where)
    return asyncio.run(serve(found, session_id, hand, command=command, tty=tty, take=not beside))


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--take", is_flag=True, help="Take control: calls wait until it is copied.")
@operator_options
def cp(found: Found, source: str, target: str, take: bool) -> None:
    """Copy a file or a folder to a hand, or from one.

    SESSION:[HAND]:PATH is a path in the hand's workspace; the other one is of this machine.
    """
    from hands.visit.copy import copy

    click.echo(asyncio.run(copy(found, source, target, take=take)))


@click.command()
@click.argument("where", metavar="SESSION[:HAND]")
@click.argument("ports", metavar="LOCAL:REMOTE")
@click.option("--take", is_flag=True, help="Take control: calls wait until it ends.")
@operator_options
def forward(found: Found, where: str, ports: str, take: bool) -> None:
    """Have a port of this machine's loopback lead to one in a hand's network.

    LOCAL 0 is any free port. Until Ctrl-C.
    """
    from hands.visit.forward import forward as serve

    session_id, hand = _where(where)
    asyncio.run(serve(found, session_id, hand, ports, take=take))


@click.command()
@click.argument("where", metavar="SESSION[:HAND]")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@operator_options
def view(found: Found, where: str, opens: bool) -> int:
    """Watch a hand that has a screen, in your browser; take control of it there, and give it back.

    Prints the address of a page on this machine's loopback, which opens once. While you have
    control, calls of that hand that have not begun wait, and the session's log says so. Until
    Ctrl-C.
    """
    from hands.visit.view import view as serve

    session_id, hand = _where(where)
    return asyncio.run(serve(found, session_id, hand, opens=opens))


def _where(text: str) -> tuple[str, str]:
    session_id, _, hand = text.partition(":")
    return check_id(session_id, "SESSION"), hand
