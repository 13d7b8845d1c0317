"""Which channels channel exchange swapped: the share of each layer's channels against the epoch, from the records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmark.arguments import add_results
from benchmark.errors import UsageError
from benchmark.studies._output import add_output, write_numbers
from leaderboard.merge import gather
from leaderboard.record import Record

PREFIX = "exchanged_"  # of the numbers `channel_exchange.progress` leaves in the training history
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

Curves = dict[str, list[float]]  # layer -> share after each epoch


def curves(record: Record) -> Curves:
    """Share of exchanged channels per layer and epoch of a record's training; empty if the method exchanges nothing."""
    shares: Curves = {}
    for stage in record.training:
        for epoch in stage.history:
            for name, value in epoch.items():
                if name.startswith(PREFIX) and value is not None:
                    shares.setdefault(name.removeprefix(PREFIX), []).append(float(value))
    return shares


def plot(by_dataset: Mapping[str, Mapping[str, Sequence[Curves]]], path: Path) -> None:
    """One row of panels per dataset, one panel per method; a colour per layer, a line per seed."""
    columns = max(len(methods) for methods in by_dataset.values())
    figure = Figure(figsize=(1 + 3.2 * columns, 0.6 + 2.5 * len(by_dataset)), layout="constrained")
    panels = figure.subplots(len(by_dataset), columns, sharey=True, squeeze=False)
    for row, (dataset, methods) in zip(panels, by_dataset.items(), strict=True):
        for axes in row[len(methods) :]:
            axes.set_axis_off()
        for axes, (label, seeds) in zip(row, methods.items(), strict=False):
            axes.set_title(f"{label}\n{dataset}", fontsize=8)
            axes.set(xlabel="epoch", ylim=(-0.03, 1.03))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for i, layers in enumerate(seeds):
                for (layer, shares), colour in zip(layers.items(), COLOURS * len(layers), strict=False):
                    epochs = range(1, len(shares) + 1)
                    axes.plot(epochs, shares, color=colour, lw=1.2, label=f"layer {layer}" if i == 0 else None)
        row[0].set_ylabel("share of channels exchanged")
        row[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=130)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polymodal study exchange`."""
    add_results(parser)
    add_output(parser, "exchange")


def run(args: argparse.Namespace) -> int:
    """Print the last epoch's shares; write plot and `exchange.json`."""
    by_dataset: dict[str, dict[str, list[Curves]]] = {}
    for record in gather([args.results]).records:
        if layers := curves(record):
            by_dataset.setdefault(record.cell.dataset, {}).setdefault(record.cell.label, []).append(layers)
    if not by_dataset:
        raise UsageError(f"no record in {args.results} has shares of exchanged channels: run `polymodal run exchange`")
    args.out.mkdir(parents=True, exist_ok=True)
    print(f"{'dataset':16}{'method':36}share of exchanged channels per layer after the last epoch, mean of seeds")
    for dataset, methods in by_dataset.items():
        for label, seeds in methods.items():
            last = [sum(layers[layer][-1] for layers in seeds) / len(seeds) for layer in seeds[0]]
            print(f"{dataset:16}{label:36}" + " ".join(f"{share:.2f}" for share in last))
    plot(by_dataset, args.out / "exchange.png")
    write_numbers(args.out / "exchange.json", by_dataset)
    print(f"Plot and numbers are in {args.out}")
    return 0
