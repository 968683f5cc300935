"""Many episodes at once: what fails, what stops, what is kept."""

import asyncio

import pytest

from envs.events import Action
from scenarios.core import packaged
from scenarios.errors import EngineError, RunError, UsageError
from socialrl_cli.cast import Cast, Seat, check_participants
from socialrl_cli.episodes import Crew, PlayConfig, play_all
from socialrl_cli.evaluation import plan
from socialrl_cli.store import Store, read_games

LINEAR, BOULWARE = "scripted:linear", "scripted:boulware"


class BrokenCast(Cast):
    """Seats a participant whose engine dies in every `every`th game."""

    def __init__(self, folder, every: int) -> None:
        super().__init__(folder)
        self.every, self.count = every, 0

    def seat(self, text, *, env, seat, seed, session, failed):
        if text != "broken":
            return super().seat(text, env=env, seat=seat, seed=seed, session=session, failed=failed)
        self.count += 1
        dies = self.count % self.every == 0

        class Agent:
            async def decide(self, context, actions):
                if dies:
                    taken.fault = EngineError("the engine is gone")
                    failed(str(taken.fault))
                return Action("walk_away")

        taken = Seat(Agent())
        return taken


def games(policy: str, count: int = 40):
    return plan(packaged("dnd", "test")[:count], policy, [BOULWARE], seats=("a", "b"))


def played(cast: Cast, todo, config=None, **more):
    found = []

    async def go() -> None:
        async with cast:
            await play_all(todo, cast, config or PlayConfig(), done=found.append, **more)

    asyncio.run(go())
    return found


def test_concurrency_changes_no_game(tmp_path):
    one = played(Cast(tmp_path), games(LINEAR), PlayConfig(concurrency=1))
    many = played(Cast(tmp_path), games(LINEAR), PlayConfig(concurrency=40))
    key = lambda p: p.game.episode_id  # noqa: E731
    assert [p.result() for p in sorted(one, key=key)] == [p.result() for p in sorted(many, key=key)]


def test_an_episode_whose_engine_dies_is_a_failed_row_with_its_error(tmp_path):
    found = played(BrokenCast(tmp_path, every=20), games("broken"), PlayConfig(max_failed_fraction=0.2))
    failed = [p.result() for p in found if p.status == "failed"]
    assert len(found) == 40
    assert len(failed) == 2
    assert {(r.reward, r.outcome, r.error) for r in failed} == {(0.0, "aborted", "the engine is gone")}


def test_too_many_failed_episodes_stop_the_run_with_the_last_error(tmp_path):
    with pytest.raises(RunError, match=r"more than max_failed_fraction = 0\.1; the last one: the engine is gone"):
        played(BrokenCast(tmp_path, every=2), games("broken"))


def test_a_stop_finishes_the_games_under_way_and_starts_no_more(tmp_path):
    started = []
    found = played(
        Cast(tmp_path),
        games(LINEAR),
        PlayConfig(concurrency=4),
        should_stop=lambda: started.append(1) or len(started) > 8,
    )
    assert len(found) == 8


def test_a_store_knows_its_finished_games_when_it_is_opened_again(tmp_path):
    todo = games(LINEAR, 6)
    with Store(tmp_path) as store:
        for episode in played(Cast(tmp_path), todo):
            store.add(episode)
    with open(tmp_path / "games.jsonl", "a") as file:
        file.write('{"env": "dnd", "torn')
    with Store(tmp_path) as store:
        assert set(store.finished) == {game.episode_id for game in todo}
        store.add(played(Cast(tmp_path), games(LINEAR, 7)[6:])[0])
    assert len(read_games(tmp_path)) == 7  # the torn line took nothing with it


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("scripted:boulwar", "boulwar"),
        ("run:nowhere", "nowhere"),
        ("model:./nowhere", "nowhere"),
        ("python:json:nowhere", "nowhere"),
        ("python:no_such_module:x", "no_such_module"),
    ],
)
def test_a_participant_that_is_not_there_is_refused_before_any_game(text, named):
    with pytest.raises(UsageError) as caught:
        check_participants((text,), "dnd")
    assert named in str(caught.value)


async def test_a_crew_serves_who_came_first_and_one_failure_does_not_touch_the_others(tmp_path):
    order = []

    def note(name):
        return lambda played: order.append((name, played.game.episode_id))

    async with BrokenCast(tmp_path, every=1) as cast:
        crew = Crew(cast, PlayConfig(concurrency=4))
        first = asyncio.create_task(crew.play(games(LINEAR, 30), done=note("first")))
        await asyncio.sleep(0)
        broken = asyncio.create_task(crew.play(games("broken", 30), done=note("broken")))
        await asyncio.sleep(0)
        last = asyncio.create_task(crew.play(games(BOULWARE, 30), done=note("last")))
        await asyncio.gather(first, last)
        with pytest.raises(RunError, match="episodes failed"):
            await broken
    names = [name for name, _ in order]
    assert names.count("first") == names.count("last") == 30
    assert names.index("last") >= 30 - 4  # none of the last began while some of the first had not


async def test_a_crew_ends_the_games_of_who_is_cancelled(tmp_path):
    async with Cast(tmp_path) as cast:
        crew = Crew(cast, PlayConfig(concurrency=2))
        found = []
        one = asyncio.create_task(crew.play(games(LINEAR), done=found.append))
        while not found:
            await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        many = len(found)
        await crew.play(games(BOULWARE, 5), done=found.append)
    assert many < 40
    assert [played.game.policy for played in found[many:]] == [BOULWARE] * 5


async def test_a_python_participant_that_cannot_be_made_is_refused_in_one_line(tmp_path):
    async with Cast(tmp_path) as cast:
        cast.prepare(("python:json:loads",))
        with pytest.raises(UsageError, match=r"env, seat and seed.*TypeError"):
            await play_all(games("python:json:loads", 2), cast, PlayConfig(), done=lambda _: None)
