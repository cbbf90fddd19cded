import pytest

from schemas.configs import IngestConfig
from schemas.errors import ClozelineError
from tests.pipelines.readers.reading import BOM, read_content, read_cut, reasons


def test_json_lines(tmp_path):
    lines = [
        b'{"id": "x", "text": "One \\u00e9\\n\xc3\xa9."}',
        b'{"text": "Two.", "id": 7}',
        b"",
        b'{"text": "Three.", "id": null}\r',
        b'{"text": "Four.", "id": ""}',
        b'{"other": {"text": "no"}, "text": "Five.", "id": true}',
    ]
    kept, rejected = read_content(tmp_path, BOM + b"\n".join(lines), "jsonl")
    assert kept == [
        ("x", "One é\né."),
        ("7", "Two."),
        ("a.x:69", "Three."),
        ("a.x:101", "Four."),
        ("a.x:129", "Five."),
    ]
    assert rejected == []


def test_json_lines_under_other_names(tmp_path):
    line = b'{"url": "u", "body": "One.", "text": "no", "id": "no"}\n'
    assert read_content(tmp_path, line, "jsonl", text_field="body", id_field="url")[0] == [("u", "One.")]


@pytest.mark.parametrize(
    ("line", "name", "reason", "detail"),
    [
        pytest.param(b'{"text": "cut', "a.x:5", "invalid_json", "unexpected end", id="cut"),
        pytest.param(
            b'["a"]', "a.x:5", "invalid_json", "expected an object on the line, found list", id="list"
        ),
        pytest.param(b'{"text": "\\ud800"}', "a.x:5", "invalid_json", "surrogate", id="lone surrogate"),
        pytest.param(
            b'{"id": "k", "body": "b"}',
            "k",
            "missing_text",
            "'text' is absent; the keys are 'id', 'body'",
            id="absent",
        ),
        pytest.param(b"{}", "a.x:5", "missing_text", "the keys are none", id="no key"),
        pytest.param(
            b'{"text": 3}', "a.x:5", "missing_text", "'text' is int; expected a string", id="number"
        ),
        pytest.param(b'{"text": null}', "a.x:5", "missing_text", "'text' is NoneType", id="null"),
        pytest.param(b'{"text": " \\n\\u00a0", "id": "k"}', "k", "empty", "white space", id="blank"),
        pytest.param(
            b'{"text": "\xff"}', "a.x:5", "invalid_utf8", "a.x, byte offset 15: 0xff", id="encoding"
        ),
        pytest.param(
            b'{"text": "%s"}' % (b"x" * 90), "a.x:5", "too_long", "longer than 100 bytes", id="too long"
        ),
    ],
)
def test_only_the_wrong_json_line_is_rejected(tmp_path, line, name, reason, detail):
    good = b'{"text": "Good.", "id": "g"}\n'
    kept, rejected = read_content(tmp_path, b"    \n" + line + b"\n" + good, "jsonl", max_document_bytes=100)
    assert kept == [("g", "Good.")]
    assert reasons(rejected) == [(name, reason)]
    assert detail in rejected[0][2]


@pytest.mark.parametrize("mark", [b"", BOM])
@pytest.mark.parametrize(
    "content",
    [
        b'[{"text": "One."}, {"text": "Two."}]',
        b'[\n{"text": "One."},\n{"text": "Two."}\n]\n',
        b' [ \r\n  {\r\n    "text": "One."\r\n  }\r\n]',
        b'[{"text": "%s"}]' % (b"x" * 200),
    ],
    ids=["a line", "an object a line", "indented", "longer than a document may be"],
)
def test_an_array_of_objects_is_refused_with_how_to_make_lines_of_it(tmp_path, mark, content):
    with pytest.raises(ClozelineError, match=r"a\.x holds one JSON array; .*\n.*`jq -c '\.\[\]' FILE"):
        read_content(tmp_path, mark + content, "jsonl", max_document_bytes=100)


def test_an_array_that_is_no_list_of_objects_is_one_wrong_line(tmp_path):
    kept, rejected = read_content(tmp_path, b'["a"]\n{"text": "Good.", "id": "g"}\n', "jsonl")
    assert kept == [("g", "Good.")]
    assert reasons(rejected) == [("a.x:0", "invalid_json")]


def test_every_split_of_a_json_file_gives_its_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    content = BOM + b"".join(b'{"text": "%s"}\r\n' % (b"x" * n) for n in (1, 5, 0, 2)) + b'{"text": "end"}'
    config = IngestConfig(inputs=("x",))
    whole = read_cut(path, content, [0, len(content)], config)
    assert [len(text) for _, text in whole[0]] == [1, 5, 2, 3]
    for cut in range(len(content) + 1):
        assert read_cut(path, content, sorted({0, cut, len(content)}), config) == whole
    assert read_cut(path, content, list(range(len(content) + 1)), config) == whole
