"""Strict JSON: what is read, and the one line that says why something is not."""

import re

import pytest

from scenarios.errors import DataError, UsageError
from scenarios.jsonfile import documents, is_int, loads, rows, shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ('{"a": 1', "not JSON: Expecting ',' delimiter"),
        ("{'a': 1}", "not JSON: Expecting property name"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits"),
        ('{"a": 1, "a": 2}', "key 'a' stands twice"),
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a": 1} x', "not JSON: Extra data"),
    ],
)
def test_what_is_not_strict_json_gives_one_line(text, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as error:
        loads(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_rows_have_their_line_numbers_whatever_stands_between(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \nnope\n{"a": "\xff"}\n{"b": "\xe2\x80\xa8 \x0c"}')
    found = list(rows(path))
    assert [row.line for row in found] == [1, 4, 5, 6]
    assert found[0].value == {"a": 1}
    assert found[1].fault == "not JSON: Expecting value at column 1"
    assert found[2].fault == "not UTF-8 (byte 8 of the line)"
    assert found[3].value is None  # a form feed must be escaped
    assert "control character" in found[3].fault


def test_a_document_may_be_laid_out_over_lines_or_one_a_line(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{\n "a": 1\n}\n')
    assert [row.value for row in documents(path)] == [{"a": 1}]
    path.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert [(row.line, row.value) for row in documents(path)] == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xff\xfe{}", "not UTF-8 (byte 1)"),
        (b'{"a": 1', "not JSON"),
        (b'{\n"a": NaN\n}', "NaN is not a number"),
        (b'{"a": 1}\n{"a": }\n', ":2: not JSON: Expecting value at column 7"),
    ],
)
def test_a_bad_document_is_refused_with_its_place(tmp_path, content, reason):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        documents(path)
    assert str(error.value).startswith(str(path))
    assert reason in str(error.value)


def test_what_is_no_readable_file_is_said(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        documents(tmp_path / "none.json")
    with pytest.raises(UsageError, match="is a directory"):
        documents(tmp_path)
    with pytest.raises(UsageError, match="the name of a file is empty"):
        documents("")
    with pytest.raises(DataError, match="cannot be read"):
        documents("a\0b")


def test_only_integers_are_integers():
    assert [is_int(x) for x in (1, -3, 10**30, True, 1.0, "1", None)] == [True, True, True] + [False] * 4


def test_a_value_is_shown_short_and_in_ascii():
    assert shown("x" * 500) == "'" + "x" * 56 + "..."
    assert shown("ü\n") == "'\\xfc\\n'"
    assert shown(10**5000) == "a int too large to print"
