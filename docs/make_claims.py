"""The claims of the sources: the sentence, who says it, and the rule that decides it, as the code has them."""

from benchmark.judging import claims

HEAD = """# Claims

What the sources say, as experiments: a sentence, and a rule that was fixed before the data. The interval of a quantity
alone decides. Wholly on the right side of its threshold the rule holds, wholly on the wrong side it is broken, across
it nothing is decided: the verdict is *supported*, *refuted* or *open*. A claim with several rules is supported if all
hold and refuted if one is broken, so each is judged at a level that makes them simultaneous.

```sh
polymodal claims                                # every claim, and its verdict here
polymodal claims show low_rank_reaches_tensor   # the rule, the evidence, the command
polymodal claims run                            # run the cells that are missing, write the page with figures
```

Verdicts come from cells and are not written here by hand: `polymodal claims run` makes the page that has them.
"""


def page() -> str:
    """A section a claim."""
    parts = [HEAD]
    for entry in claims.entries():
        claim = claims.get(entry.name)()
        parts.append(
            f"## `{entry.name}`\n\n> {entry.summary}\n\nSource: {claim.source}.\n\nSupported if, with intervals:\n"
        )
        parts.append("\n".join(f"- {rule.text}" for rule in claim.rules) + "\n")
        if claim.caveat:
            parts.append(f"{claim.caveat}\n")
    return "\n".join(parts)
