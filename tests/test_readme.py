"""README's Python blocks run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)


def test_there_are_blocks():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, capsys, monkeypatch):
    from minigrad.engine import OPS

    monkeypatch.chdir(README.parent)
    before = set(OPS)
    try:
        exec(compile(BLOCKS[number], f"README block {number}", "exec"), {"__name__": "__main__"})
    finally:
        for name in set(OPS) - before:
            del OPS[name]
    assert capsys.readouterr().out


def test_the_short_example_is_short():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 22
