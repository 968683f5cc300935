"""The commands, and the machinery that joins play to learning."""
