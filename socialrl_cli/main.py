"""The `socialrl` command: parses, imports late, prints."""


def main() -> None:
    """Stand-in until the first command is mounted."""
