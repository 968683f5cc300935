"""Tables, plots and statistics of results."""
