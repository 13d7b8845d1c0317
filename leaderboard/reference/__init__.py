"""The results that are published with Polymodal; README.md says where they come from."""

from pathlib import Path

REFERENCE = Path(__file__).parent / "reference.parquet"
