"""How it is learned: one file per algorithm, shared maths in small pure modules."""
