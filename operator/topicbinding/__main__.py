"""`python -m topicbinding PROGRAM`: the one entry of the control image.

Programs are imported only when asked for, so that each needs no more than its own extra.
"""

from __future__ import annotations

import importlib
import sys

from topicbinding import __version__

PROGRAMS = {
    "controller": ("topicbinding.controller.main", "turns bindings into generations"),
    "bridge": ("topicbinding.bridge.main", "reads one binding's control topic"),
    "gateway": ("topicbinding.gateway.main", "shows every binding to people and programs"),
    "demo": ("topicbinding.demo.main", "keeps sample topics moving"),
    "cli": ("topicbinding.cli.main", "what `kubectl topicbinding` runs"),
}


def usage() -> str:
    width = max(map(len, PROGRAMS))
    lines = [f"  {name:{width}}  {what}" for name, (_, what) in PROGRAMS.items()]
    return "\n".join(
        [f"topicbinding {__version__}", "usage: python -m topicbinding PROGRAM [--help] …", *lines]
    )


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(__version__)
        return 0
    program, *rest = arguments
    if program not in PROGRAMS:
        print(f"no program {program!r}\n{usage()}", file=sys.stderr)
        return 2
    return int(importlib.import_module(PROGRAMS[program][0]).main(rest) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
