"""Recorded metrics of a run: request times, token gaps, traffic windows."""
