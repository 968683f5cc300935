"""Readers of published corpora in their own formats, one file a corpus; the interface is in `core.py`."""

IMPORTERS = ("dealornodeal", "casino", "job_interview", "craigslist", "amazon_history_price", "socialreasoning_bench")
