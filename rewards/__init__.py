"""How it is scored: pure functions of a scenario and an outcome, no I/O."""
