"""``tuner open``: the live page of the daemon in a browser."""

import click

from tuner.cli.output import echo
from tuner.cli.remote import socket_option, when_started


@click.command("open", short_help="Show the daemon's live page in a browser.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port of 127.0.0.1. Default: 8750, or a free one.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, or print the link only.")
@socket_option
def open_page(*, port: int | None, browser: bool, socket: str | None) -> None:
    """Show devices, jobs, trials and answers of the daemon in a browser, until Ctrl-C.

    The page is served on 127.0.0.1 to this user alone. The link is good for one browser. From another
    machine: `ssh -L 8750:127.0.0.1:8750 HOST tuner open --port 8750`.
    """
    from tuner.page.serving import listen, open_browser, serve

    client, _ = when_started(socket, lambda daemon: daemon.status())
    listener = listen(port)

    def opened(link: str) -> None:
        shown = browser and open_browser(link)
        echo(f"the page of the daemon at {client.address}, for one browser, until Ctrl-C:", err=True)
        echo(link)
        if browser and not shown:
            echo("no browser can be started here: open the link in yours", err=True)

    serve(client.transport, listener, opened)
