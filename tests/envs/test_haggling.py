"""The rules of Craigslist and the marketplace, move by move, and what each seat is told."""

import json
import re

import pytest

import envs
from envs.agents.reading import Invalid, parse_action
from envs.core import Action, Limits, run
from envs.craigslist import brief, tell
from scenarios.core import Scenario

LISTING = {
    "category": "bike",
    "title": "Blue <b>bike",
    "description": "It rolls.\nIt stops.",
    "listing_price": 275,
    "buyer_target": 209,
}
PRODUCT = {
    "product": {"name": "Lamp", "description": "It shines."},
    "list_price": 120,
    "reservation": {"seller": 60, "buyer": 90},
}
FIELDS = {"craigslist": LISTING, "marketplace": PRODUCT}
PROMPTS = ("full", "compact", "people")
ACCEPT, REJECT, LEAVE, TALK = Action("accept"), Action("reject"), Action("walk_away"), Action("message", {"say": ""})
ALL = envs.make(Scenario("s", "craigslist", "test", "here", LISTING), seed=0).specs()[0]


class Moves:
    def __init__(self, *moves):
        self.moves, self.turns = list(moves), []

    async def decide(self, context, actions):
        self.turns.append((dict(context[-1].payload), [spec.name for spec in actions]))
        return self.moves.pop(0)


def asks(price, say=""):
    return Action("propose", {"offer": {"price": price}, "say": say})


async def game(name, buyer, seller, **limits):
    env = envs.make(Scenario("s", name, "test", "here", FIELDS[name]), seed=1, limits=Limits(**limits))
    agents = {"buyer": Moves(*buyer), "seller": Moves(*seller)}
    await run(env, agents)
    return env, agents


def told(env, seat, prompt="full"):
    module = envs.module(env.scenario.env)
    return [module.tell(event, seat, prompt) for event in env.channels[seat].events]


async def test_an_accepted_price_is_the_deal_whoever_named_it():
    env, agents = await game("craigslist", [asks(190), ACCEPT], [asks(250)])
    assert (env.outcome.agreement, env.outcome.by) == ({"price": 250}, "buyer")
    assert env.outcome.seats["buyer"].reward == pytest.approx(25 / 66)
    assert agents["buyer"].turns[0][0]["standing"] is None
    assert agents["buyer"].turns[0][1] == ["message", "propose", "walk_away"]
    assert agents["buyer"].turns[1][0]["standing"] == {"price": 250}


async def test_the_buyer_moves_first_and_the_seller_of_the_marketplace_has_opened():
    env, agents = await game("marketplace", [ACCEPT], [])
    assert env.outcome.agreement == {"price": 120}
    assert env.outcome.seats["buyer"].reward == 0  # above its reservation: possible, and worth nothing
    assert env.outcome.seats["seller"].reward == 1
    turn, possible = agents["buyer"].turns[0]
    assert (turn["standing"], turn["moves_left"], turn["replies_left"]) == ({"price": 120}, 10, 10)
    assert "accept" in possible
    env, agents = await game("marketplace", [REJECT, TALK], [TALK, ACCEPT], moves_per_seat=2)
    assert agents["seller"].turns[0][1] == ["message", "propose", "walk_away"]
    assert agents["buyer"].turns[1][0]["standing"] is None  # it was turned down
    assert env.outcome.status == "timeout"


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        ({"price": -5}, "offer price is -5, expected more than 0"),
        ({"price": 0}, "offer price is 0, expected more than 0"),
        ({"price": 1.001}, "offer price is 1.001, expected at most two decimals"),
        ({"price": float("nan")}, "offer price is nan, expected a number"),
        ({"price": float("inf")}, "offer price is inf, expected a number"),
        ({"price": "7,500"}, "offer price is '7,500', expected a number"),
        ({"price": None}, "offer price is None, expected a number"),
        ({"price": 2e9}, "offer price is 2000000000.0, expected more than 0 and at most 1,000,000,000"),
        ({}, "offer does not name a price"),
        (190, 'offer is 190, expected an object like {"price": 190}'),
    ],
)
@pytest.mark.parametrize("name", FIELDS)
async def test_an_offer_that_is_no_amount_is_an_event_with_its_reason(name, offer, reason):
    env, _ = await game(name, [Action("propose", {"offer": offer}), asks(70.5), LEAVE], [TALK])
    faults = [event.payload["reason"] for event in env.channels["buyer"].events if event.type == "invalid_action"]
    assert len(faults) == 1
    assert faults[0].startswith(reason)
    assert [e.payload["offer"]["price"] for _, e in env.journal if e.type == "proposal"][-1] == 70.5


async def test_a_price_above_the_listed_one_may_be_offered_and_paid():
    env, _ = await game("craigslist", [asks(400)], [ACCEPT])
    assert [got.reward for got in env.outcome.seats.values()] == [0, 1]


async def test_the_full_prompt_says_what_each_seat_needs_to_know():
    env, _ = await game("craigslist", [asks(190, "Would you?"), TALK, LEAVE], [asks(250), TALK])
    buyer, seller = (brief(env.channels[seat].events[0], "full") for seat in env.seats)
    assert "a deal at 209 or less is worth 1 to you, one at 275 or more 0" in buyer
    assert "Description: It rolls. It stops." in buyer
    assert "<" not in buyer
    assert "You move first, then in turn, 10 moves each." in buyer
    assert "209" not in seller
    assert "The other side moves first" in seller
    assert 'The other side offers: the price is 190. It says: "Would you?"' in told(env, "seller")
    assert any(
        text.startswith("If you accept, the price is 190, 69% of the listing price.") for text in told(env, "seller")
    )
    assert any(
        text.startswith("If you accept, the price is 250, worth 0.38 of 1 to you.") for text in told(env, "buyer")
    )


async def test_the_marketplace_says_how_far_a_price_is_from_the_own_limit():
    env, _ = await game("marketplace", [asks(70), LEAVE], [asks(90)])
    assert any("the price is 120, 30 above your limit." in text for text in told(env, "buyer"))
    assert any("the price is 70, 10 above your limit." in text for text in told(env, "seller"))
    assert any("the price is 90, just your limit." in text for text in told(env, "buyer"))
    assert "price 120 =-30\n1/10" in told(env, "buyer", "compact")
    assert "price 70 =+10\n1/10" in told(env, "seller", "compact")
    full, compact, people = (envs.module("marketplace").brief(env.channels["seller"].events[0], p) for p in PROMPTS)
    assert "Your limit is 60, which only you know: the further above it you sell" in full
    assert compact == "Haggle as seller. list 120 my limit 60"
    assert people == "Lamp, listed at 120, limit 60"


async def test_compact_and_people_prompts_are_short():
    env, _ = await game("craigslist", [asks(190, "Would you?"), LEAVE], [asks(250.5)])
    events = env.channels["buyer"].events
    assert brief(events[0], "compact") == "Haggle as buyer. list 275 my target 209"
    assert brief(events[0], "people") == "Blue ‹b›bike (bike), listed at 275, hopes for 209"
    assert "price 250.50 =0.37\n2/10" in told(env, "buyer", "compact")
    assert [text for event in events if (text := tell(event, "", "people"))][:2] == [
        'buyer offers 190: "Would you?"',
        "seller offers 250.50",
    ]


@pytest.mark.parametrize("name", FIELDS)
async def test_the_answers_of_the_prompt_are_legal_moves(name):
    env, _ = await game(name, [asks(80), LEAVE], [TALK])
    for seat in env.seats:
        text = envs.module(name).answers(env.channels[seat].events[0])
        examples = [json.loads(found) for found in re.findall(r"^\{.*?\}(?= to )", text, re.MULTILINE)]
        assert [example["move"] for example in examples] == list(envs.module(name).MOVES)
        assert env.offer_fault(examples[1]["offer"]) is None


async def test_leaks_and_due_diligence_are_reported_beside_the_reward():
    env, _ = await game(
        "marketplace",
        [asks(50), Action("message", {"say": "I have ninety."}), asks(90, "all I have"), LEAVE],
        [asks(100, "My cost is 60"), asks(60), TALK],
    )
    assert env.outcome.measures == {
        "pareto_distance": pytest.approx(0.5**0.5),
        "joint_share": 0,
        "nash_share": 0,
        "outcome_optimality": 0,
        "leaks_buyer": 1,
        "leaking_offers_buyer": 1,
        "leaks_seller": 1,
        "leaking_offers_seller": 1,
        "due_diligence": 1 / 2,  # 50 of 90 is sound, then all the 40 that were left
    }
    env, _ = await game("craigslist", [asks(209, "209 please"), LEAVE], [asks(275)])
    assert (env.outcome.measures["leaks_buyer"], env.outcome.measures["leaking_offers_buyer"]) == (1, 1)
    assert "leaks_seller" not in env.outcome.measures  # it has no private number


@pytest.mark.parametrize(
    ("written", "price"),
    [
        ('"7,500"', 7500),
        ('"$7.5k"', 7500),
        ('"$190.50"', 190.5),
        ('"190 dollars"', 190),
        ("190.0", 190),
        ("1e9", 1_000_000_000),
    ],
)
async def test_a_price_is_read_as_people_write_it(written, price):
    env, _ = await game(
        "craigslist", [parse_action(f'{{"move":"propose","offer":{{"price":{written}}}}}', ALL)], [ACCEPT]
    )
    assert env.outcome.agreement == {"price": price}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('{"price":"-5"}', "offer price is -5, expected more than 0 and at most 1,000,000,000"),
        ('{"price":"1e9"}', 'offer.price: "1e9" is not one clear number'),
        ('{"price":"190 or 200"}', 'offer.price: "190 or 200" is not one clear number'),
        ('{"price":NaN}', "offer.price: NaN is not a number"),
        ('{"price":-Infinity}', "offer.price: -Infinity is not a number"),
        ('{"price":null}', "offer.price: null is not a number"),
        ('{"price":""}', 'offer.price: "" is not one clear number'),
        ('{"price":1e10}', "offer price is 10000000000, expected more than 0 and at most 1,000,000,000"),
        ('{"price":190.555}', "offer price is 190.555, expected at most two decimals"),
        ('{"price":190,"delivery":true}', "offer has an unknown field 'delivery'; it has price"),
        ('{"amount":190}', "offer does not name a price"),
        ("190", 'offer is 190, expected an object like {"price": 190}'),
        ("null", "propose needs the field 'offer'"),
    ],
)
async def test_what_is_no_price_is_told_to_the_model_in_words_it_can_act_on(written, reason):
    answer = parse_action(f'{{"move":"propose","offer":{written}}}', ALL)
    if isinstance(answer, Invalid):
        answer = Action.unreadable(written, answer.reason)
    env, _ = await game("craigslist", [answer, LEAVE], [])
    assert [e.payload["reason"] for e in env.channels["buyer"].events if e.type == "invalid_action"] == [reason]
    assert env.outcome.status == "walk_away"
