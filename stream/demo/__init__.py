"""The demo: a small shop that places orders in PostgreSQL, and a mail provider to send to."""
