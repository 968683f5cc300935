"""Plays seat a of a new game of dnd with the standard library alone: remote_agent.py http://127.0.0.1:8300"""

import json
import sys
from urllib.request import Request, urlopen

EPISODES = sys.argv[1] + "/v1/episodes"


def call(path="", secret="", body=None):
    data = None if body is None else json.dumps(body).encode()
    head = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    with urlopen(Request(EPISODES + path, data, head), timeout=60) as answer:
        return json.load(answer)


def decide(mine, turn):
    """Takes what is worth 6 of 10, or anything at the last move; asks for all of its two best items, later of one."""
    if turn["standing"] and (turn["worth"] >= 6 or turn["moves_left"] == 1):
        return {"move": "accept", "say": "Agreed."}
    best = sorted(mine["values"], key=mine["values"].get)[-2 if turn["round"] < 6 else -1 :]
    offer = {item: count if item in best else 0 for item, count in mine["counts"].items()}
    return {"move": "propose", "offer": offer, "say": f"I would like every {' and '.join(best)}."}


game = call(body={"env": "dnd", "seed": 1, "seats": {"a": "remote", "b": "scripted:linear"}})
seat, secret = f"/{game['episode_id']}/seats/a", game["secrets"]["a"]
page = {"cursor": 0, "closed": False}
while not page["closed"]:
    page = call(f"{seat}/events?cursor={page['cursor']}&wait_s=20", secret)
    for event in page["events"]:
        if event["type"] == "briefing":
            mine = event["payload"]
        if event["kind"] == "notification":
            action = decide(mine, event["payload"])
            call(f"{seat}/actions", secret, {"notification_id": event["notification_id"], "action": action})
print(json.dumps(call(f"{seat}/outcome", secret)))
