"""The grammar of participants."""

import pytest

from scenarios.errors import UsageError
from socialrl_cli.participants import parse


def test_a_scripted_participant_has_a_name_and_options():
    found = parse("scripted:boulware:f=0.3,e=4")
    assert (found.kind, found.name, dict(found.options)) == ("scripted", "boulware", {"f": "0.3", "e": "4"})


def test_a_run_may_name_a_step_and_its_path_may_hold_an_at_sign():
    assert (parse("run:runs/a").name, parse("run:runs/a").step) == ("runs/a", None)
    found = parse("run:home@me/a@20")
    assert (found.name, found.step) == ("home@me/a", 20)


def test_a_served_model_is_split_at_the_last_at_sign():
    found = parse("openai:org/model@v2@http://127.0.0.1:8000/v1")
    assert (found.name, found.url) == ("org/model@v2", "http://127.0.0.1:8000/v1")


def test_a_model_path_is_taken_as_it_is():
    assert parse("model:./some/folder:odd").name == "./some/folder:odd"


def test_a_python_participant_names_a_module_and_an_attribute():
    found = parse("python:pkg.mod:Agent")
    assert (found.name, found.attr) == ("pkg.mod", "Agent")


def test_people_and_remote_programs_have_no_name():
    assert [(parse(text).kind, parse(text).text) for text in ("human", "remote")] == [("human",) * 2, ("remote",) * 2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("boulware", "unknown kind 'boulware'"),
        ("scripted", "scripted:NAME"),
        ("scripted:", "scripted:NAME"),
        ("scripted:x:f", "key=value"),
        ("scripted:x:f=", "key=value"),
        ("run:a@later", "not a whole number"),
        ("openai:gpt", "openai:MODEL@BASE_URL"),
        ("openai:gpt@localhost:80", "http://"),
        ("python:mod", "python:MODULE:ATTR"),
        ("", "unknown kind"),
        ("human:Ada", "expected human"),
        ("remote:", "expected remote"),
    ],
)
def test_a_wrong_participant_is_refused_with_the_form_that_is_expected(text, named):
    with pytest.raises(UsageError, match="participant") as caught:
        parse(text)
    assert named in str(caught.value)
