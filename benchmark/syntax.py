"""Code as text that is the same for every Python: what digests of code are made of.

As Python 3.11 wrote `ast.dump`. Later ones write the same code in other words, and a cell that was published from one
Python would be a stranger to the next.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

_NEWER = ("type_params",)  # fields that 3.11 did not know, left out while they say nothing


def written(node: Any) -> str:
    """A syntax tree in one line."""
    if isinstance(node, list):
        return f"[{', '.join([written(item) for item in node])}]"  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, ast.AST):
        return repr(node)
    name, known = _kind(type(node))
    fields: list[str] = []
    for field, optional in known:
        value: Any = getattr(node, field, None)
        if field == "values" and name == "JoinedStr":  # 3.12 ends some with an empty string
            value = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
        if not ((optional and value is None) or (field in _NEWER and not value)):
            fields.append(f"{field}={written(value)}")
    return f"{name}({', '.join(fields)})"


@cache
def _kind(kind: type[ast.AST]) -> tuple[str, list[tuple[str, bool]]]:
    """The name of a kind of nodes and its fields, each with whether it may be left out."""
    return kind.__name__, [(field, getattr(kind, field, ...) is None) for field in kind._fields]
