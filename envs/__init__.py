"""How it is played: no knowledge of models or training."""
