"""`kubectl topicbinding COMMAND`: parses the command line and runs one command."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from topicbinding import __version__
from topicbinding.cli import commands
from topicbinding.cli.kubectl import Kubectl, KubectlError
from topicbinding.cli.show import Health
from topicbinding.kafka.records import KafkaProblem
from topicbinding.kafka.settings import KafkaSettingsError

Command = Callable[[Kubectl, argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", help="namespace of the binding")
    common.add_argument("--context", help="context of the kubeconfig")
    common.add_argument("--kubeconfig", help="path of the kubeconfig")
    root = argparse.ArgumentParser(prog="kubectl topicbinding", description="Live joins of two Kafka topics.")
    root.add_argument("--version", action="version", version=f"topicbinding {__version__}")
    every = root.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, takes_binding: bool = True) -> argparse.ArgumentParser:
        about = (command.__doc__ or "").strip()
        made = every.add_parser(name, parents=[common], help=about.split(".")[0], description=about)
        made.set_defaults(command=command)
        if takes_binding:
            made.add_argument("name", help="name of the binding")
        return made

    add("tree", commands.tree)
    add("watch", commands.watch)
    add("status", commands.status).add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long while it is on its way"
    )
    add("rollback", commands.rollback)
    add("pause", commands.pause)
    add("resume", commands.resume)
    opened = add("open", commands.open_page)
    opened.add_argument("--port", type=int, default=8080, help="local port of the forward")
    opened.add_argument("--system-namespace", default=commands.SYSTEM_NAMESPACE, help="where the gateway is")
    opened.add_argument("--no-browser", action="store_true", help="only print the address")
    add("lint", commands.lint, takes_binding=False).add_argument("files", nargs="+", metavar="FILE")
    _add_send(add("send", commands.send))
    return root


def _add_send(send: argparse.ArgumentParser) -> None:
    send.add_argument("--users", metavar="TOPIC", help="users topic")
    send.add_argument("--accounts", metavar="TOPIC", help="accounts topic")
    send.add_argument("--join", metavar="TYPE", help="left, inner or natural")
    send.add_argument("--rollback", action="store_true", help="go back to what was served before")
    send.add_argument("--id", help="comes back in the receipts")
    send.add_argument("--raw", metavar="TEXT", help="this very message instead")
    send.add_argument("--force", action="store_true", help="send it even if it would be rejected")
    send.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="brokers as seen from here")
    send.add_argument(
        "--wait", type=float, default=10.0, metavar="SECONDS", help="for the verdict; 0: do not"
    )


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)
    flags = tuple(
        f"--{name}={value}"
        for name in ("namespace", "context", "kubeconfig")
        if (value := getattr(options, name)) is not None
    )
    try:
        return int(options.command(Kubectl(flags), options))
    except (KubectlError, KafkaProblem, KafkaSettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return int(Health.UNKNOWN)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head`
        return 0


if __name__ == "__main__":
    sys.exit(main())
