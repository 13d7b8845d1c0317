"""Data modules that several datasets share."""
