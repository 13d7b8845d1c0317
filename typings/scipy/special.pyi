# scipy ships no types: what comes from it is Any to pyright, and is annotated where it is used.

from typing import Any

def __getattr__(name: str) -> Any: ...
