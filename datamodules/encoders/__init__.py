"""Frozen encoders as a dataset transform: computed once, cached, trained upon."""
