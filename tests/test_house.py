"""The rule of `house.py` about plain English finds planted phrases and accepts plain ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import house

PLANTED = [
    "This is no file of the library.",
    "Columns that are none stay.",
    "One picture a capability is drawn.",
    "Rows nobody has seen.",
    "Mended files.",
    "The error is told.",
    "It leaves with 3.",
    "Write over existing files.",
    "p is not above 0.05.",
    "The curve if nothing is there.",
    "It answers in the caller's arrays.",
    "Text that hardly repeats.",
    "An error in words.",
    "HSIC and its kin.",
    "Ignored without a word.",
    "Ties are to be reckoned with.",
    "A method of ours.",
    "Weights for rows to come.",
    "What came is printed.",
]
PLAIN = [
    "There is no file, and it is no longer needed: the error is no larger than before.",
    "The default is None, and none of the columns is used.",
    "One picture per capability, one of two samples.",
    "They cannot be told apart. The error is reported.",
    "Overwrite existing files, or exit with status 3.",
    "p = 0.001, significant at the 0.05 level.",
    "Code such as `is no file` is left out.",
]


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function from a file's name and text to what the rule finds in it."""
    monkeypatch.setattr(house, "TREE", tmp_path)

    def find(name: str, text: str) -> list[str]:
        monkeypatch.setattr(house, "PROSE", [name])
        (tmp_path / name).write_text(text, encoding="utf-8")
        return list(house.voice())

    return find


@pytest.mark.parametrize("phrase", PLANTED)
def test_voice_finds_a_planted_phrase(phrase: str, found) -> None:
    first, last = phrase.split(" ", 1)
    for name, text in {
        "page.md": f"# Title\n{phrase}\n",
        "wrapped.md": f"# Title\n{first}\n{last}\n",
        "docstring.py": f'X = 1\n"""{phrase}"""\n',
        "comment.py": f"X = 1\n# {first}\n# {last}\n",
    }.items():
        (fault,) = found(name, text)
        assert fault.startswith(f"{name}:") and "; write " in fault


def test_every_phrase_of_the_table_is_planted() -> None:
    for pattern in house.VOICE:
        assert any(re.search(pattern, phrase, re.IGNORECASE) for phrase in PLANTED), pattern


def test_voice_gives_the_line(found) -> None:
    text = "\n\nThe first\nline is\nno file.\n"
    assert found("page.md", text) == [
        "page.md:4: 'is no file'; write 'is not a …', 'there is no …'"
    ]


@pytest.mark.parametrize("phrase", PLAIN)
def test_voice_accepts_plain_phrases(phrase: str, found) -> None:
    assert found("page.md", phrase) == []
    assert found("module.py", f'"""{phrase}"""\n') == []


def test_voice_ignores_code(found) -> None:
    assert found("module.py", "mend = nobody = None\n") == []
