"""What a run records: request times, token gaps, traffic windows."""
