"""Benchmarks: the relay and the groups against hand-written loops on the same broker and database."""
