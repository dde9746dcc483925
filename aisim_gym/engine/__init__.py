"""One rank: scheduler, KV pool, timing, forward-pass metrics. Compiled code and its tables."""
