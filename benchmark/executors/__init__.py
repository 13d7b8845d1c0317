"""Executors: where the cells of a plan run."""
