"""One file per command: adapters that parse, call one function and print."""
