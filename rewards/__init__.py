"""How an outcome is paid: pure functions from a scenario and an outcome to one scalar in [0, 1] per seat."""
