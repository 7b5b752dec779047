"""The fields of a class with the comments behind them, which are their documentation."""

from __future__ import annotations

import ast
import inspect
import io
import json
import sys
import tokenize
from typing import Dict, List, NamedTuple, Type

from tools.docs.markdown import UndocumentedError


class Field(NamedTuple):
    """A field as its class declares it."""

    name: str
    kind: str
    default: str  # as TOML writes it; empty if there is nothing by default
    is_required: bool
    meaning: str


def fields_of(declared_in: Type[object]) -> List[Field]:
    """The annotated fields of a class, each with the comment behind it, or in the lines before it.

    Raises:
        UndocumentedError: a field has no comment.
    """
    # Of its module: from Python 3.13 on, where a class stands is not known of those that another one makes anew, as
    # NamedTuple and msgspec do.
    source = inspect.getsource(sys.modules[declared_in.__module__])
    comments = _comments(source)
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    [declaration] = [node for node in classes if node.name == declared_in.__name__]
    fields, previous_line = [], declaration.lineno
    for node in declaration.body:
        last_line = node.end_lineno or node.lineno
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(previous_line + 1, last_line + 1)
            meaning = " ".join(comments[line] for line in lines if line in comments)
            if not meaning:
                raise UndocumentedError(f"{declared_in.__qualname__}.{node.target.id} has no comment")
            default = "" if node.value is None else _default(node.value, vars(sys.modules[declared_in.__module__]))
            kind = ast.unparse(node.annotation)
            fields.append(Field(node.target.id, kind, default, node.value is None, meaning))
        previous_line = last_line
    return fields


def _default(written: ast.expr, module: Dict[str, object]) -> str:
    """A default as TOML writes it, given by itself or by the name of a constant; empty for None and empty tables."""
    value = module[written.id] if isinstance(written, ast.Name) else None
    if isinstance(written, ast.Constant):
        value = written.value
    return json.dumps(value) if isinstance(value, (str, int, float)) and value != "" else ""


def _comments(source: str) -> Dict[int, str]:
    """The comments of a source by line, without those for linters."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("# ")
            if not text.startswith(("type:", "noqa", "fmt:")):
                found[token.start[0]] = text
    return found
