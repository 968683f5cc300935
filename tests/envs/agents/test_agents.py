"""The example in the package's documentation works as it stands there."""

import textwrap

import envs
import envs.agents
from envs.agents.scripted import scripted
from envs.core import run
from scenarios.core import packaged


async def test_the_participant_in_the_documentation_plays():
    text = envs.agents.__doc__
    code = text[text.index("    from envs.core") : text.index("`context[0]`")]
    space: dict = {}
    exec(textwrap.dedent(code), space)
    env = envs.make(packaged("dnd", "test")[0], seed=1)
    outcome = await run(env, {"a": space["Patient"](), "b": scripted("dnd", "conceder", seed=1)})
    assert outcome.status == "agreement"
    assert outcome.by == "a"
