"""What is played: schemas, seeded generators, importers and the packaged splits in `data/`.

`ENVIRONMENTS` names the environments that have scenarios and a reward. Each has a module of its name in
`scenarios/` (the interface is in `scenarios/core.py`), one in `rewards/` and packaged splits in `data/NAME/`.
`NEGOTIATIONS` are those of them that "all" means and whose scores are averaged; `PARTIES` are games of more than two
seats with moves, policies and a table size of their own.
"""

NEGOTIATIONS = ("dnd", "casino", "craigslist", "job_interview", "calendar", "marketplace")
PARTIES = ("werewolf",)
ENVIRONMENTS = (*NEGOTIATIONS, *PARTIES)
