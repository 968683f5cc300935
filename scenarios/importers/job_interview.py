"""Job interviews in their published layout (Yamaguchi et al., negotiation breakdown detection).

    sessions  a JSON list: id, status, users (worker and recruiter with their utilities), comments, solutions (bids)

Names of people, of their accounts and what they wrote are not kept; a session is known by its number in the file.

How records become outcomes: a completed session with an accepted bid is an `agreement` on the first such bid; one
without, and sessions that were aborted or terminated, are `aborted`: the record does not say who left. A row is bad
when its utilities are no scenario, when a bid that is no deal was accepted, or when a session that was not completed
has an accepted bid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from scenarios import job_interview
from scenarios.core import Problem, Scenario
from scenarios.errors import DataError
from scenarios.importers.core import Imported, Odd, Played, records
from scenarios.importers.shapes import a_list, an_object, one_of
from scenarios.job_interview import BOUNDS, COMPANIES, ISSUES, OPTIONS, POSITIONS, SEATS, deal_fault
from scenarios.jsonfile import is_int, shown

ENV = "job_interview"
FORMATS = ("sessions",)
STATUSES = ("completed", "aborted", "terminated")
NAMES = {  # as the corpus writes them
    "Salary": "salary",
    "Weekly holiday": "weekly_holiday",
    "Position": "position",
    "Workplace": "workplace",
    "Company": "company",
}

WHY = {
    "no_accepted_bid": "completed, but no bid was accepted: pays 0",
    "two_accepted": "two bids were accepted: the first one counts",
    "illegal_bid": "a bid names a number that is not whole, or out of range",
    "incomplete_bid": "a bid does not name all five issues",
    "no_bids": "there is no bid",
    "no_comments": "nobody wrote anything",
    "again": "the same interview stood in an earlier record",
}


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The sessions of some files. Raises `DataError` where a file cannot be read or has no known format."""
    found = Imported()
    seen: set[tuple[str, str]] = set()  # scenario and the session's id
    for path in map(str, paths):
        found.formats[path] = FORMATS[0]
        for number, value, fault in records(path):
            found.rows += 1
            source = f"job_interview:{Path(path).name}:{number}"
            try:
                if fault:
                    raise ValueError(fault)
                row = an_object(value, "the record")
                if "users" not in row and format is None and found.rows == 1:
                    raise DataError(f"{path}: does not look like {FORMATS[0]}; name the format with --format")
                scenario = _scenario(row, source)
                record, deal, odd = _outcome(row)
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
                continue
            name = (scenario.id, str(row.get("id")))
            again = name in seen
            found.odd += [Odd(path, number, kind, WHY[kind]) for kind in (["again"] if again else odd)]
            if again:
                continue
            seen.add(name)
            outcome: dict[str, Any] = {"status": "aborted" if deal is None else "agreement"}
            if deal is not None:
                outcome["agreement"] = deal
            found.games += 1
            found.played.append(Played(found.keep(scenario).id, outcome, record, source, {}))
    return found


def _scenario(row: Mapping[str, Any], source: str) -> Scenario:
    """The scenario of both users' utilities. Raises `ValueError`."""
    users: dict[str, Mapping[str, Any]] = {}
    for user in a_list(row.get("users"), "users"):
        role = one_of(an_object(user, "a user").get("role"), "role", SEATS)
        if role in users:
            raise ValueError(f"there are two users in the role {role}")
        users[role] = user
    if len(users) < len(SEATS):
        raise ValueError(f"there is no {next(seat for seat in SEATS if seat not in users)}")
    told = {seat: _utilities(seat, a_list(users[seat].get("utilities"), "utilities")) for seat in SEATS}
    fields = {
        "weights": {seat: weights for seat, (weights, _) in told.items()},
        "options": {seat: options for seat, (_, options) in told.items()},
    }
    faults = job_interview.check(fields)
    if faults:
        raise ValueError("; ".join(faults))
    return job_interview.build(fields["weights"], fields["options"], source=source)


def _utilities(seat: str, rows: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A user's weights and option values."""
    weights: dict[str, Any] = {}
    options: dict[str, Any] = {"position": {company: {} for company in COMPANIES}}
    for row in rows:
        issue = NAMES[one_of(an_object(row, "a utility").get("name"), "the name of a utility", tuple(NAMES))]
        if issue in weights:
            raise ValueError(f"{seat} has the utility {row['name']} twice")
        weights[issue] = row.get("weight")
        if issue in BOUNDS:
            bounds = (row.get("min"), row.get("max"))
            if bounds != BOUNDS[issue]:
                raise ValueError(f"{seat}'s {issue} runs from {shown(bounds[0])} to {shown(bounds[1])}, expected "
                                 f"{BOUNDS[issue][0]} to {BOUNDS[issue][1]}")  # fmt: skip
            continue
        for option in a_list(row.get("options"), f"{seat}'s options of {issue}"):
            option = an_object(option, f"an option of {issue}")
            if issue == "position":
                names = an_object(option.get("names"), "the names of a position")
                company = one_of(names.get("Company"), "Company", COMPANIES)
                values, name = options["position"][company], one_of(names.get("Position"), "Position", POSITIONS)
            else:
                values = options.setdefault(issue, {})
                name = one_of(option.get("name"), f"an option of {issue}", OPTIONS[issue])
            if name in values:
                raise ValueError(f"{seat} has the {issue} {name} twice")
            values[name] = option.get("weight")
    return weights, options


def _outcome(row: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None, list[str]]:
    """What the record says, the deal if there is one, and what is odd. Raises `ValueError`."""
    status = one_of(row.get("status"), "status", STATUSES)
    bids = [an_object(bid, "a bid") for bid in a_list(row.get("solutions"), "solutions")]
    odd = [] if bids else ["no_bids"]
    odd += [] if a_list(row.get("comments"), "comments") else ["no_comments"]
    accepted = []
    for bid in bids:
        if bid.get("accepted") not in (True, False, None) or is_int(bid.get("accepted")):
            raise ValueError(f"accepted is {shown(bid['accepted'])}, expected true or null")
        body = an_object(bid.get("body"), "the body of a bid")
        deal = {NAMES.get(key, key): value for key, value in body.items()}
        fault = deal_fault(deal)
        if fault and bid.get("accepted"):
            raise ValueError(f"the accepted bid {fault}")
        if fault:
            odd.append("illegal_bid" if all(issue in deal for issue in ISSUES) else "incomplete_bid")
        elif bid.get("accepted"):
            accepted.append({issue: deal[issue] for issue in ISSUES})
    if status != "completed":
        if accepted:
            raise ValueError(f"a bid was accepted, though the session was {status}")
        return status, None, odd
    if not accepted:
        return "completed", None, ["no_accepted_bid", *odd]
    return "accepted", accepted[0], [*odd, "two_accepted"] if len(accepted) > 1 else odd
