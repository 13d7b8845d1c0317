"""Modules that several methods share."""
