"""EMMA with its modes coupled and with each on its own."""

from benchmark.judging import Claim, Difference, above, claim


@claim("emma_coupling_helps")
def emma_coupling_helps() -> Claim:
    """Coupling the energies of the modes makes EMMA more robust than weighing each by its own potential alone."""
    return Claim(
        source="Werenne 2019, EMMA: composition of the potentials, eqs. 13-15",
        entries=("emma", {"name": "emma", "coupling": "none"}),
        datasets=("digit_halves", "multi_digits", "av_digits"),
        rules=(above("drop uncoupled less drop coupled", Difference("emma", "emma[coupling=none]", "drop")),),
    )
