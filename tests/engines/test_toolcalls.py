"""Function calls in a model's own text."""

import json

import pytest

from socialrl_cli.engines.toolcalls import split

CALL = {"name": "propose", "arguments": {"offer": {"book": 1}}}
ACCEPT = {"name": "accept", "arguments": {}}


def functions(text):
    beside, calls = split(text, [1, 2])
    return beside, [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", ""),
        (f"I offer this.\n<tool_call>{json.dumps(CALL)}</tool_call>", "I offer this."),
        (f"<tool_call>{json.dumps(CALL)}", ""),  # cut off behind it
        (f"<tool_call>[{json.dumps(CALL)}]</tool_call>", ""),
        (f"[TOOL_CALLS] [{json.dumps(CALL)}]", ""),
        (json.dumps(CALL), ""),
        (json.dumps({"name": "propose", "parameters": CALL["arguments"]}), ""),
        (json.dumps({"name": "propose", "arguments": json.dumps(CALL["arguments"])}), ""),
    ],
)
def test_a_call_is_found_however_models_write_it(text, beside):
    assert functions(text) == (beside, [("propose", CALL["arguments"])])


def test_several_calls_are_several():
    text = "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in (CALL, ACCEPT))
    assert functions(text) == ("", [("propose", CALL["arguments"]), ("accept", {})])
    ids = [call["id"] for call in split(text, [1, 2])[1]]
    assert len(set(ids)) == 2
    assert all(len(name) == 9 and name.isalnum() for name in ids)  # as Mistral's templates want them
    assert ids != [call["id"] for call in split(text, [1, 3])[1]]
    assert ids == [call["id"] for call in split(text, [1, 2])[1]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I accept.",
        '{"move":"accept"}',
        '<tool_call>{"name": "propose", "arguments": {"offer"</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "propose", "arguments": [1]}</tool_call>',
        f"<tool_call>{json.dumps(CALL)}</tool_call><tool_call>{{</tool_call>",
        'He said {"name": "x"}',
        "[" * 5000,
        "<tool_call></tool_call>",
    ],
)
def test_what_is_no_call_stays_text(text):
    assert split(text, [1]) == (text, [])
