"""The results that are published with Polymodal; README.md says where they come from."""

from pathlib import Path

REFERENCE = Path(__file__).parent / "reference.parquet"
TUNED = Path(__file__).parent / "tuned.toml"  # what `polymodal tune reference --trials 8` chose on validation rows
# Simple methods on datasets that are not on the published board, quoted by `polymodal data info`.
BASELINES = Path(__file__).parent / "baselines.parquet"
VERDICTS = Path(__file__).parent / "claims.json"  # on the claims of the sources, as `polymodal claims run` wrote them
