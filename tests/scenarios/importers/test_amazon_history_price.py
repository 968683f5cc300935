"""Importing products with the history of their prices, on invented ones."""

import json

import pytest

from scenarios import core as scenarios
from scenarios.importers import core


def product(listed=120.0, current=90.0, lowest=60.0, highest=125.0, average=95.0, **changes):
    row = {
        "title": "Garden  lamp",
        "category": "garden",
        "list_price": listed,
        "current_price": current,
        "lowest_price": lowest,
        "highest_price": highest,
        "average_price": average,
    }
    row["raw"] = {key: f"${value:,.2f}" for key, value in row.items() if isinstance(value, float)}
    return {**row, **changes}


def imported(tmp_path, *rows):
    path = tmp_path / "products.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return core.read("amazon_history_price", [path])


def test_the_budget_is_the_current_price_and_the_cost_the_lowest(tmp_path):
    found = imported(tmp_path, product())
    (only,) = found.scenarios
    assert dict(only.fields) == {
        "product": {"name": "Garden lamp", "description": "A product of the category garden."},
        "list_price": 120,
        "reservation": {"seller": 60, "buyer": 90},
    }
    assert (only.id, only.source) == ("marketplace-garden-lamp-120-60-90", "amazon_history_price:products.jsonl:1")
    assert scenarios.check(only) == []
    assert (found.rows, found.games, found.odd, found.bad) == (1, 1, [], [])


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (product(highest=110.0), ["highest_below_list"]),
        (product(listed=1299.0), ["highest_below_list", "thousands"]),
        (product(title="Lampe für draußen"), ["non_ascii"]),
    ],
)
def test_an_odd_product_is_imported_and_told(tmp_path, row, kinds):
    found = imported(tmp_path, row)
    assert len(found.scenarios) == 1
    assert [odd.kind for odd in found.odd] == kinds


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (product(current=60.0), "no room to bargain: it costs its lowest price 60 now"),
        (product(current=120.0), "no room to bargain: it costs 120, not less than its list price 120"),
        (product(current=122.5), "no room to bargain: it costs 122.50, not less than its list price 120"),
        (product(current=50.0), "lowest 60.0, current 50.0, average 95.0, highest 125.0 are not in order"),
        (product(average=200.0), "are not in order"),
        (product(list_price=130.0), "list_price is 130.0, but printed as '$120.00'"),
        (product(raw={"list_price": "cheap"}), "list_price is 120.0, but printed as 'cheap'"),
        (product(raw=[]), "raw is [], expected an object"),
        (product(lowest=None), "lowest_price is None, expected a number"),
        (product(lowest=-1.0), "lowest_price is -1.0, expected more than 0"),
        (product(title=""), "title is '', expected a text"),
        (product(category=3), "category is 3, expected a text"),
        ("7", "the record is 7, expected an object"),
        ("nope", "not JSON"),
    ],
)
def test_a_product_that_cannot_be_bargained_about_is_refused_with_its_place(tmp_path, row, reason):
    found = imported(tmp_path, product(), row)
    assert len(found.scenarios) == 1
    assert [(problem.line, reason in problem.reason) for problem in found.bad] == [(2, True)], found.bad
