"""Craigslist and the marketplace: what their scenarios may be, and that the generator keeps to it."""

from collections import Counter, defaultdict

import pytest

from scenarios import core, craigslist, marketplace, wording
from scenarios.core import SPLITS, check, packaged
from scenarios.money import amount_fault, from_cents, tick, to_cents, written

LISTING = {
    "category": "bike",
    "title": "Blue bike",
    "description": "It rolls.",
    "listing_price": 275,
    "buyer_target": 209,
}
PRODUCT = {
    "product": {"name": "Lamp", "description": "It shines."},
    "list_price": 120,
    "reservation": {"seller": 60, "buyer": 90},
}
THINGS = {"craigslist": lambda s: s["title"], "marketplace": lambda s: s["product"]["name"]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"category": "boat"}, "category is 'boat', expected bike, car, electronics, furniture, housing, phone"),
        ({"title": ""}, "title is '', expected a text"),
        ({"description": 3}, "description is 3, expected a text"),
        ({"listing_price": 0}, "listing_price is 0, expected more than 0 and at most 1,000,000,000"),
        ({"listing_price": "275"}, "listing_price is '275', expected a number"),
        ({"listing_price": True}, "listing_price is True, expected a number"),
        ({"buyer_target": -1}, "buyer_target is -1, expected more than 0"),
        ({"buyer_target": 208.995}, "buyer_target is 208.995, expected at most two decimals"),
        ({"buyer_target": None}, "buyer_target is None, expected a number"),
        ({"buyer_target": 275}, "buyer_target 275 is not below listing_price 275"),
        ({"buyer_target": 300}, "buyer_target 300 is not below listing_price 275"),
    ],
)
def test_each_broken_rule_of_a_listing_is_named(change, reason):
    assert craigslist.check(LISTING) == []
    assert any(reason in found for found in craigslist.check({**LISTING, **change}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"product": "Lamp"}, "product is 'Lamp', expected an object with name and description"),
        ({"product": {"name": "Lamp"}}, "product.description is missing"),
        ({"product": {"name": " ", "description": "x"}}, "product.name is ' ', expected a text"),
        ({"product": {**PRODUCT["product"], "sku": 1}}, "product has an unknown key 'sku'"),
        ({"list_price": 90}, "reservation.buyer 90 is not below list_price 90"),
        ({"list_price": float("inf")}, "list_price is inf, expected a number"),
        ({"reservation": {"seller": 90, "buyer": 90}}, "reservation.seller 90 is not below reservation.buyer 90"),
        ({"reservation": {"seller": 95, "buyer": 90}}, "reservation.seller 95 is not below reservation.buyer 90"),
        ({"reservation": {"seller": 60}}, "reservation.buyer is missing"),
        ({"reservation": {"seller": 60, "buyer": 90, "x": 1}}, "reservation has an unknown key 'x'"),
        ({"reservation": 60}, "reservation is 60, expected an object with seller and buyer"),
        ({"reservation": {"seller": -60, "buyer": 90}}, "reservation.seller is -60, expected more than 0"),
    ],
)
def test_each_broken_rule_of_a_product_is_named(change, reason):
    assert marketplace.check(PRODUCT) == []
    assert any(reason in found for found in marketplace.check({**PRODUCT, **change}))


def test_the_reward_needs_the_prices_alone():
    assert craigslist.check({"listing_price": 275, "buyer_target": 209}) == []
    assert marketplace.check({"reservation": {"seller": 60, "buyer": 90}}) == []


@pytest.mark.parametrize("env", THINGS)
def test_the_packaged_splits_are_what_the_generator_makes_and_keep_every_rule(env):
    for split, n in zip(SPLITS, (500, 50, 100), strict=True):
        found = packaged(env, split)
        assert list(found) == core.generate(env, n, 0, split)
        assert [check(scenario) for scenario in found] == [[]] * n
    assert core.generate(env, 30, 7, "val") == core.generate(env, 40, 7, "val")[:30]
    assert core.generate(env, 30, 7, "val") != core.generate(env, 30, 8, "val")


@pytest.mark.parametrize(("env", "least"), [("craigslist", 60), ("marketplace", 40)])
def test_no_listing_and_no_product_stands_in_two_splits(env, least):
    splits = defaultdict(set)
    for split in SPLITS:
        for scenario in packaged(env, split):
            splits[THINGS[env](scenario)].add(split)
            assert core.module(env).home(THINGS[env](scenario)) == split
    assert len(splits) >= least
    assert all(len(found) == 1 for found in splits.values())


def test_every_split_has_listings_of_all_six_categories():
    for split in SPLITS:
        assert set(Counter(s["category"] for s in packaged("craigslist", split))) == set(craigslist.CATEGORIES)


def test_a_listing_of_somebody_else_is_placed_by_its_title_whatever_it_is_worth():
    one = craigslist.build({**LISTING, "title": "A  blue BIKE!"}, split="train", source="x")
    two = craigslist.build({**LISTING, "title": "a blue bike", "listing_price": 300}, split="train", source="x")
    assert craigslist.groups(one.fields) == craigslist.groups(two.fields)
    assert craigslist.home("A  blue BIKE!") == core.split_of(craigslist.group("a blue bike"))


def test_scenarios_are_named_by_content_and_summed_up_in_a_line():
    scenario = craigslist.build(LISTING, split="train", source="x")
    assert scenario.id == "craigslist-blue-bike-275-209"
    assert craigslist.summary(LISTING) == "bike: Blue bike · listed at 275 · the buyer hopes for 209"
    assert marketplace.build(PRODUCT, split="train", source="x").id == "marketplace-lamp-120-60-90"
    assert marketplace.summary(PRODUCT) == "Lamp · listed at 120 · seller from 60, buyer up to 90"


def test_targets_and_reservations_vary():
    ratios = [s["buyer_target"] / s["listing_price"] for s in packaged("craigslist", "train")]
    assert min(ratios) < 0.53
    assert max(ratios) > 0.87
    zones = [s["reservation"]["seller"] / s["reservation"]["buyer"] for s in packaged("marketplace", "train")]
    assert min(zones) < 0.53
    assert max(zones) > 0.87


def test_no_sentence_of_a_pool_has_more_than_seven_words_or_stands_twice():
    for name in ("craigslist", "marketplace"):
        for row in wording.pool(name):
            told = row.get("facts", row.get("remarks"))
            assert len(set(told)) == len(told) >= 8
            assert max(len(sentence.split()) for sentence in told) <= 7


# ---- money


@pytest.mark.parametrize("amount", [1, 190, 12.5, 0.01, 99.99, 1_000_000_000])
def test_an_amount_is_a_whole_number_of_cents(amount):
    assert amount_fault(amount) is None
    assert from_cents(to_cents(amount)) == amount


def test_a_whole_amount_stays_an_integer_and_is_written_without_decimals():
    assert (type(from_cents(19000)), from_cents(1250)) == (int, 12.5)
    assert [written(amount) for amount in (190, 12.5, 190.0, -3, -0.5)] == ["190", "12.50", "190", "-3", "-0.50"]


@pytest.mark.parametrize(
    ("price", "step"), [(0.5, 1), (9, 1), (14, 10), (99, 10), (100, 100), (275, 100), (9000, 1000)]
)
def test_the_step_of_haggling_is_a_round_part_of_the_price(price, step):
    assert tick(price) == step
