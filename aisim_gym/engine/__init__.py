"""Compiled code and tables of one rank: scheduler, KV pool, timing, forward-pass metrics."""
