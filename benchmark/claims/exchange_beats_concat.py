"""Channel exchange against concatenation and against chance."""

from benchmark.judging import Claim, Difference, above, claim


@claim("exchange_beats_concat")
def exchange_beats_concat() -> Claim:
    """For modalities of one shape, exchanging channels beats concatenation and exchanging them at random."""
    random = "channel_exchange[exchange=random]"
    return Claim(
        source="Lecture on multimodal representation: channel exchange; Wang et al. 2020",
        entries=("channel_exchange", {"name": "channel_exchange", "exchange": "random"}, "concat"),
        datasets=("shapes_depth", "digit_halves"),
        matrix="exchange",
        rules=(
            above("learned exchange less concat", Difference("channel_exchange", "concat")),
            above("learned less random exchange", Difference("channel_exchange", random)),
        ),
    )
