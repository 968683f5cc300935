"""TOML files, one per experiment that we stand behind."""
