"""`polymodal completion`: what the shell needs to complete commands and options, from the parser itself."""

from __future__ import annotations

import argparse

NAME = "completion"
HELP = "Print a script that lets bash, zsh or fish complete commands and options."
EXAMPLE = """examples:
  eval "$(polymodal completion bash)"                                          in ~/.bashrc
  polymodal completion zsh > ~/.zfunc/_polymodal                               with ~/.zfunc in $fpath
  polymodal completion fish > ~/.config/fish/completions/polymodal.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> int:
    import shtab

    from benchmark.cli import parser

    print(shtab.complete(parser(), shell=arguments.shell))
    return 0
