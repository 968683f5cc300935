"""Who plays: the Agent protocol and its implementations."""
