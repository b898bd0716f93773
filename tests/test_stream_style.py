"""One way to use a stream: iterated, or read and written, never both (L35).

gRPC raises, or hangs, when an iterator and `read` take from one stream, or when a handler yields
some answers and writes others. So no function of ours does either, nor two of one class.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("carpal", "brain", "hands", "sessiond", "vault")


def mixed(tree: ast.AST) -> Iterator[str]:
    """What is used both ways, with a line of it."""
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.ClassDef, ast.AsyncFunctionDef)):
            iterated = {
                ast.unparse(each.iter): each.lineno
                for each in ast.walk(scope)
                if isinstance(each, ast.AsyncFor)
            }
            for name in iterated.keys() & _called(scope, "read"):
                # In a class, a local name of one function is not that of another.
                if isinstance(scope, ast.AsyncFunctionDef) or name.startswith("self."):
                    yield f"{iterated[name]}: {name} is iterated and read"
        if isinstance(scope, ast.AsyncFunctionDef):
            yields = any(isinstance(each, ast.Yield) for each in ast.walk(scope))
            if yields and "context" in _called(scope, "write"):
                yield f"{scope.lineno}: {scope.name} yields and writes"


def _called(scope: ast.AST, method: str) -> set[str]:
    """On what a method is called."""
    return {
        ast.unparse(each.func.value)
        for each in ast.walk(scope)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == method
    }


def test_no_stream_is_both_iterated_and_read_and_no_handler_yields_and_writes_l35() -> None:
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    assert len(files) > 100
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in files
        if "v1" not in path.parts and (wrong := list(mixed(ast.parse(path.read_text()))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "body",
    [
        "async def f(s):\n async for x in s: pass\n await s.read()",
        "async def f(r, context):\n yield 1\n await context.write(2)",
        "class C:\n async def f(self):\n  async for x in self.s: pass\n"
        " async def g(self):\n  await self.s.read()",
    ],
)
def test_what_is_mixed_is_found(body: str) -> None:
    assert list(mixed(ast.parse(body)))
