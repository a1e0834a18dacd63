"""Strict JSON: what every parser reads the same way, and for all else a refusal that says where."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from approvals.strictjson import MAX_BYTES, StrictJSONError, loads, raw_member

SAFE = 2**53 - 1


def fault(data: bytes, **options: Any) -> StrictJSONError:
    with pytest.raises(StrictJSONError) as caught:
        loads(data, **options)
    assert caught.value.detail
    return caught.value


def outcome(data: bytes) -> tuple[StrictJSONError | None, Any]:
    try:
        return None, loads(data)
    except StrictJSONError as found:
        return found, None


@pytest.mark.parametrize(
    ("text", "pointer", "words"),
    [
        ('{"amount":100,"amount":99999}', "/amount", "more than once"),  # K57
        ('{"a":{"b":[0,{"x":1,"x":2}]}}', "/a/b/1/x", "more than once"),  # K57, nested
        ('{"a":1,"\\u0061":2}', "/a", "more than once"),  # the same name, written otherwise
        ('{"a/b":{"~":1,"~":2}}', "/a~1b/~0", "more than once"),
        ('{"":1,"":2}', "/", "more than once"),
        ('{"reason":"\\ud800"}', "/reason", "surrogate"),  # K55
        ('{"a":["x",["\\udfff"]]}', "/a/1/0", "surrogate"),  # K55, nested arrays
        ('{"\\ud800":1}', "/\\ud800", "surrogate"),  # K55, keys
        ('{"a":"\\udc00\\ud800"}', "/a", "surrogate"),  # a pair the wrong way round
        ('"\\ud83d"', "", "surrogate"),
        ('{"a":"x\\u0000y"}', "/a", "U+0000"),
        ('{"x\\u0000":1}', "/x\\u0000", "U+0000"),
        ('{"a":NaN}', "/a", "NaN"),
        ('{"a":[1,Infinity]}', "/a/1", "Infinity"),
        ('{"a":-Infinity}', "/a", "Infinity"),
        ('{"a":1e400}', "/a", "too large"),
        ('{"a":-1e400}', "/a", "too large"),
        ('{"a":9007199254740992}', "/a", "outside"),
        ('{"a":[-9007199254740992]}', "/a/0", "outside"),
        ('{"a":' + "9" * 5000 + "}", "/a", "outside"),  # past the interpreter's own limit on digits
        ('{"a":1} x', "", "follows"),
        ('{"a":1}{}', "", "follows"),
        ('{"a":1,}', "", "name in double quotes"),
        ('{"a":[1,]}', "/a/1", "missing or malformed"),
        ('{"a":[1 2]}', "/a", "comma"),
        ('{"a" 1}', "", "colon"),
        ("{'a':1}", "", "name in double quotes"),
        ('{"a":tru}', "/a", "malformed"),
        ('{"a":truex}', "", "comma"),
        ('{"a":01}', "", "comma"),
        ('{"a":+1}', "/a", "malformed"),
        ('{"a":.5}', "/a", "malformed"),
        ('{"a":1.}', "", "comma"),
        ('{"a":١}', "/a", "malformed"),  # a digit, but none of JSON's
        ('{"a":"\\x"}', "/a", "string is malformed"),
        ('{"a":"b\nc"}', "/a", "string is malformed"),
        ('{"a":"b', "/a", "string is malformed"),
        ('{"a":{"b":1', "/a", "comma"),
        ("[", "/0", "missing"),
        ("]", "", "malformed"),
        ("\u00a0{}", "", "malformed"),  # no white space of JSON's
        ("// note\n{}", "", "malformed"),
    ],
)
def test_a_refusal_names_the_member(text: str, pointer: str, words: str) -> None:  # K55, K57
    found = fault(text.encode())
    assert found.pointer == pointer
    assert words in found.detail
    json.dumps({"pointer": found.pointer, "detail": found.detail}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),  # a surrogate in raw bytes
        (b'{"a":"\xc0\x80"}', "not UTF-8"),  # an overlong U+0000
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'"' + b"x" * MAX_BYTES + b'"', "larger than 65536"),
    ],
)
def test_what_is_no_text_at_all(data: bytes, words: str) -> None:
    found = fault(data)
    assert words in found.detail
    assert found.pointer == ""


def test_depth_is_bounded_before_anything_recurses() -> None:
    assert loads(b"[" * 32 + b"]" * 32) is not None
    assert fault(b"[" * 33 + b"]" * 33).pointer == "/0" * 32
    assert fault(b"[" * 60_000).pointer == "/0" * 32
    assert fault(b'{"a":' * 10_000).pointer == "/a" * 32
    assert fault(b'{"a":[[]]}', max_depth=2).pointer == "/a/0"
    assert loads(b'{"a":"[[[[[[","b":"\\"[[[["}', max_depth=1) == {"a": "[[[[[[", "b": '"[[[['}
    assert loads(b"[[],[],[],[]]", max_depth=2) == [[], [], [], []]
    assert loads(b"7", max_depth=0) == 7


def test_integers_that_every_parser_agrees_on_are_taken() -> None:
    assert loads(f"[{SAFE},{-SAFE},-0,0]".encode()) == [SAFE, -SAFE, 0, 0]
    assert loads(b'"9007199254740993"') == "9007199254740993"  # in a string it is text


def test_floats_can_be_forbidden() -> None:
    assert loads(b"[1.5,1e2]") == [1.5, 100.0]
    for text in ("1.5", "1e2", "100.0", "-0.0"):
        assert fault(f'{{"a":[{text}]}}'.encode(), allow_floats=False).pointer == "/a/0"
    assert loads(b"[1,2]", allow_floats=False) == [1, 2]


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert loads(b'{"a":"\\ud83d\\ude00","\\ud83d\\ude00":1}') == {"a": "\U0001f600", "\U0001f600": 1}
    assert loads(b'"\\\\u0000 \\\\ud800"') == "\\u0000 \\ud800"  # escaped backslashes


def test_the_refusal_never_quotes_what_was_sent() -> None:  # R-A9
    found = fault(b'{"a":"<script>secret","a":1}')
    assert "secret" not in found.detail


safe_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | safe_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(safe_text, inner, max_size=4),
    max_leaves=20,
)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_is_read_back(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    read = loads(text.encode())
    assert json.dumps(read) == json.dumps(value)


@given(st.text(alphabet='{}[]",:\\u0dD8eE1.-+ntf\n\u00e9 aNI', max_size=40) | st.text(max_size=20))
@example('{"a":1,"a":1}')
@example('{"a":"\\ud800"}')
def test_it_is_never_laxer_than_the_library_and_never_raises_anything_else(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    found, read = outcome(data)
    if found is not None:
        assert found.detail != "The text cannot be read."  # the slow reading found the reason
        return
    assert json.dumps(read) == json.dumps(json.loads(data))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found, _ = outcome(data)
    assert found is None or found.detail


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b",".join([b"1"] * 32_000) + b"]",
        b"[" + b",".join([b"1.5"] * 16_000) + b"]",
        b"[" + b",".join([b"[]"] * 21_000) + b"]",
        b'["' + b"[" * 65_000 + b'"]',
        b"{" + b",".join(b'"k%d":"\\u0001"' % n for n in range(3_400)) + b"}",
    ],
)
def test_a_full_body_is_read_quickly(data: bytes) -> None:
    assert len(data) <= MAX_BYTES
    best = min(timed(data) for _ in range(5))
    assert best < 0.05  # measured: 2 to 8 ms; room for a busy machine


def timed(data: bytes) -> float:
    begun = time.perf_counter()
    loads(data)
    return time.perf_counter() - begun


@pytest.mark.parametrize(
    ("text", "name", "raw"),
    [
        ('{"parameters": {"b" : 1.0, "a":2 } }', "parameters", '{"b" : 1.0, "a":2 }'),
        ('{"a":"}","parameters":[1,\n 2],"z":0}', "parameters", "[1,\n 2]"),
        ('{"x":{"parameters":1},"parameters":  "\\u00e9"}', "parameters", '"\\u00e9"'),
        ('{"param\\u0065ters":7}', "parameters", "7"),
        ('{"é":1,"parameters":-1e5}', "parameters", "-1e5"),
        ("{}", "parameters", None),
        ('{"x":1}', "parameters", None),
    ],
)
def test_a_members_text_is_kept_as_it_was_sent(text: str, name: str, raw: str | None) -> None:
    assert raw_member(text.encode(), name) == raw


@given(st.dictionaries(safe_text, values, max_size=4), st.sampled_from([None, 2]))
def test_a_members_text_means_the_members_value(members: dict[str, Any], indent: int | None) -> None:
    data = json.dumps(members, indent=indent, ensure_ascii=False).encode()
    for name, value in members.items():
        raw = raw_member(data, name)
        assert raw is not None
        assert raw in data.decode()
        assert json.dumps(json.loads(raw)) == json.dumps(value)


@pytest.mark.parametrize("data", [b"[]", b"7", b"", b'{"a', b"\xff", b'{"a":tru}'])
def test_a_member_of_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(StrictJSONError):
        raw_member(data, "a")
