"""The registry of methods."""

from __future__ import annotations

from datamodules.registry import Registry

methods = Registry("method", "methods", "polymodal.methods")
register = methods.register
