"""Participants: scripted policies, the LLM harness. The protocol that they share is `envs.events.Agent`."""

from envs.events import Agent

__all__ = ["Agent"]
