"""Craigslist bargains in the two layouts in which they are around (He et al., CraigslistBargain; its summaries).

    dialogues  a JSON list of whole dialogues: scenario.kbs with the views of buyer and seller, outcome, events
    summaries  one JSON object a line: title, list_price, buyer_target, descriptions, outcome, last_action, offers

A scenario is the listing as the seller describes it (the buyer's lines are a part of that), its price, which is the
seller's target, and the buyer's target; a seller whose target is another price contradicts the listing. No
reservation price is recorded and none is needed: a seller's lowest price is its player's own affair.

How records become outcomes: reward 1 is an `agreement` at the recorded price, wherever that lies; reward 0 after a
reject is `walk_away`; otherwise (somebody quit, the talk just ended) it is `aborted`. Dialogues are not kept. A
dialogue that stands in several files is one game.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from scenarios import craigslist
from scenarios.core import Problem
from scenarios.errors import DataError
from scenarios.importers.core import Imported, Odd, Played, records
from scenarios.importers.shapes import a_list, a_text, an_object
from scenarios.jsonfile import is_int, shown
from scenarios.money import amount_fault

ENV = "craigslist"
FORMATS = ("dialogues", "summaries")
LOW = 0.3  # of the listing price: a deal below is remarkable
LATE_CLOCK = 1000.0  # seconds: where the time stamps of a dialogue begin

WHY = {
    "null_offer": "an offer without a price",
    "above_list": "the deal is above the listing price: the buyer gets 0, the seller 1",
    "low": "the deal is below 30% of the listing price",
    "offer_without_deal": "an offer is recorded as the outcome, but there was no deal: pays 0",
    "no_offer_key": "the outcome names no offer",
    "two_accepts": "two accepts: the first one ended the talk",
    "own_accept": "the side that made the latest offer accepted",
    "early_accept": "an accept before any offer",
    "after_end": "something follows the first accept or reject",
    "ends_with_offer": "the talk ends with an offer",
    "ends_with_message": "the talk ends with a message",
    "no_message": "nobody said anything",
    "other_uuid": "the scenario is named by two different ids",
    "other_image": "an image belongs to another post",
    "no_image": "there is no image",
    "other_clock": "start times run on another clock",
    "again": "the same dialogue stood in an earlier record",
}


@dataclass(frozen=True, slots=True)
class Record:
    """What a row of either layout says; `odd` are keys of WHY."""

    uuid: str
    fields: dict[str, Any]
    deal: float | None  # the price, where there was a deal
    last: str  # the last action
    odd: tuple[str, ...]


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The bargains of some files. Raises `DataError` where a file cannot be read or has no known format."""
    found = Imported()
    seen: dict[str, str] = {}  # uuid -> place
    for path in map(str, paths):
        layout = format
        for number, value, fault in records(path):
            layout = layout or _format_of(path, value)
            found.rows += 1
            try:
                if fault:
                    raise ValueError(fault)
                record = (_dialogue if layout == "dialogues" else _summary)(value)
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
                continue
            again = ("again",) if record.uuid in seen else ()
            found.odd += [Odd(path, number, kind, WHY[kind]) for kind in (*again, *record.odd)]
            if not again:
                seen[record.uuid] = f"{path}:{number}"
                _keep(found, record, f"craigslist:{Path(path).name}:{number}")
        if layout is None:
            raise DataError(f"{path}: holds no record")
        found.formats[path] = layout
    return found


def _keep(found: Imported, record: Record, source: str) -> None:
    split = craigslist.home(record.fields["title"])
    scenario = found.keep(craigslist.build(record.fields, split=split, source=source))
    found.games += 1
    if record.deal is not None:
        outcome: dict[str, Any] = {"status": "agreement", "agreement": {"price": record.deal}}
    else:
        outcome = {"status": "walk_away" if record.last == "reject" else "aborted"}
    said = "deal" if record.deal is not None else record.last
    found.played.append(Played(scenario.id, outcome, said, source, {}))


def _format_of(path: str, value: Any) -> str | None:
    """The layout that a record looks like; None for one that is broken. Raises `DataError`."""
    if not isinstance(value, Mapping):
        return None
    for layout, key in (("dialogues", "scenario"), ("summaries", "list_price")):
        if key in value:
            return layout
    raise DataError(f"{path}: looks like none of the formats {', '.join(FORMATS)}; name one with --format")


def _dialogue(row: Any) -> Record:
    row = an_object(row, "the record")
    scenario = an_object(row.get("scenario"), "scenario")
    views: dict[Any, tuple[Any, Mapping[str, Any]]] = {}
    for view in a_list(scenario.get("kbs"), "scenario.kbs"):
        personal = an_object(an_object(view, "a view").get("personal"), "personal")
        views[personal.get("Role")] = (personal.get("Target"), an_object(view.get("item"), "item"))
    if set(views) != {"buyer", "seller"}:
        raise ValueError(f"the views are of {shown(sorted(map(str, views)))}, expected buyer and seller")
    (target, theirs), (wanted, item) = views["buyer"], views["seller"]
    if theirs.get("Price") != item.get("Price"):
        raise ValueError(
            f"the buyer sees the price {shown(theirs.get('Price'))}, the seller {shown(item.get('Price'))}"
        )
    fields = _fields(scenario.get("category"), item.get("Title"), item.get("Description"), item.get("Price"), target)
    _same_target(wanted, fields)
    events = [_event(event) for event in a_list(row.get("events"), "events")]
    odd = list(_played_oddly(events))
    images = [image for image in a_list(item.get("Images", []), "Images") if isinstance(image, str)]
    posts = [image.rsplit("/", 1)[-1].rsplit("_", 1)[0] for image in images]
    if any(post != scenario.get("post_id") for post in posts):
        odd.append("other_image")
    odd += ["no_image"] if not images else []
    if any(_seconds(event.get("start_time")) < LATE_CLOCK for event in row["events"]):
        odd.append("other_clock")
    if scenario.get("uuid") != row.get("scenario_uuid"):
        odd.append("other_uuid")
    deal, more = _outcome(row.get("outcome"), fields)
    offers = [price for _, action, price in events if action == "offer"]
    if deal is not None and deal not in offers[-1:]:
        raise ValueError(f"the deal is at {shown(deal)}, but the last offer is {shown(offers[-1] if offers else None)}")
    return Record(a_text(row.get("uuid"), "uuid"), fields, deal, events[-1][1] if events else "none", (*odd, *more))


def _summary(row: Any) -> Record:
    row = an_object(row, "the record")
    lines, prices = row.get("seller_description"), (row.get("list_price"), row.get("buyer_target"))
    fields = _fields(row.get("category"), row.get("title"), lines, *prices)
    _same_target(row.get("seller_target"), fields)
    odd = []
    offers = [_pair(offer) for offer in a_list(row.get("offers"), "offers")]
    if any(price is None for _, price in offers):
        odd.append("null_offer")
    last = a_text(row.get("last_action"), "last_action")
    odd += [f"ends_with_{last}"] if last in ("offer", "message") else []
    odd += ["no_image"] if row.get("n_images") == 0 else []
    odd += ["other_uuid"] if row.get("inner_scenario_uuid") != row.get("scenario_uuid") else []
    deal, more = _outcome(row.get("outcome"), fields)
    if deal is not None and deal not in [price for _, price in offers[-1:]]:
        raise ValueError(f"the deal is at {shown(deal)}, but the last offer is {shown(offers[-1:])}")
    return Record(a_text(row.get("uuid"), "uuid"), fields, deal, last, (*odd, *more))


def _fields(category: Any, title: Any, lines: Any, price: Any, target: Any) -> dict[str, Any]:
    """The fields of the scenario, checked."""
    told = [line.strip() for line in a_list(lines, "the description") if isinstance(line, str)]
    fields = {
        "category": category,
        "title": title,
        "description": "\n".join(line for line in told if line),
        "listing_price": price,
        "buyer_target": target,
    }
    faults = craigslist.check(fields)
    if faults:
        raise ValueError("; ".join(faults))
    return fields


def _same_target(target: Any, fields: Mapping[str, Any]) -> None:
    if target != fields["listing_price"]:
        raise ValueError(f"the seller's target {shown(target)} is not the price {shown(fields['listing_price'])}")


def _outcome(outcome: Any, fields: Mapping[str, Any]) -> tuple[float | None, list[str]]:
    """The price of the deal, None without one, and what is odd about it."""
    outcome = an_object(outcome, "outcome")
    reward, offer = outcome.get("reward"), outcome.get("offer")
    if reward not in (0, 1) or not is_int(reward):
        raise ValueError(f"outcome.reward is {shown(reward)}, expected 0 or 1")
    odd = [] if "offer" in outcome else ["no_offer_key"]
    if not reward:
        return None, [*odd, "offer_without_deal"] if offer is not None else odd
    price = an_object(offer, "outcome.offer, though the reward is 1,").get("price")
    fault = amount_fault(price)
    if fault:
        raise ValueError(f"the price of the deal {fault}")
    odd += ["above_list"] if price > fields["listing_price"] else []
    odd += ["low"] if price < LOW * fields["listing_price"] else []
    return price, odd


def _played_oddly(events: Sequence[tuple[Any, str, float | None]]) -> Iterator[str]:
    actions = [action for _, action, _ in events]
    ends = [i for i, action in enumerate(actions) if action in ("accept", "reject")]
    if any(action == "offer" and price is None for _, action, price in events):
        yield "null_offer"
    if actions.count("accept") > 1:
        yield "two_accepts"
    offered: Any = None  # who made the latest offer
    accepts = []
    for agent, action, _ in events:
        if action == "offer":
            offered = agent
        elif action == "accept":
            accepts.append("early_accept" if offered is None else "own_accept" if offered == agent else "")
    yield from sorted(set(accepts) - {""})
    if ends and ends[0] < len(actions) - 1:
        yield "after_end"
    if actions and actions[-1] in ("offer", "message"):
        yield f"ends_with_{actions[-1]}"
    if "message" not in actions:
        yield "no_message"


def _event(event: Any) -> tuple[Any, str, float | None]:
    """Who, what, and the price of an offer."""
    event = an_object(event, "an event")
    action = a_text(event.get("action"), "action")
    data = event.get("data")
    return event.get("agent"), action, data.get("price") if action == "offer" and isinstance(data, Mapping) else None


def _pair(offer: Any) -> tuple[Any, Any]:
    if not isinstance(offer, list) or len(offer) != 2:
        raise ValueError(f"an offer is {shown(offer)}, expected agent and price")
    return offer[0], offer[1]


def _seconds(text: Any) -> float:
    """A time stamp; infinity where there is none."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return float("inf")
