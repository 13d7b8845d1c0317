"""open_clip models from the user's folder or file, or from the hub."""

from __future__ import annotations

import logging
from typing import Any

import torch

from datamodules.encoders import weights
from datamodules.encoders.base import EncoderName, close_names


def clip_source(name: EncoderName) -> str:
    """What open_clip is asked for: the user's folder if it brings its own configuration, else the built-in one."""
    given = weights.user_weights()
    folder = None if given is None else given / name.stem
    if folder is not None and (folder / "open_clip_config.json").is_file():
        return f"local-dir:{folder}"
    import open_clip

    model, _ = name.parts
    if model not in open_clip.list_models():
        raise ValueError(f"open_clip has no model {model!r}{close_names(model, open_clip.list_models())}")
    return model


def load_clip(name: EncoderName, load: bool) -> tuple[Any, dict[str, Any]]:
    """An open_clip model, and what was published of the preprocessing of these weights."""
    import open_clip

    source = clip_source(name)
    published = open_clip.get_pretrained_cfg(*name.parts)
    path = weights.find_weights(name) if load else None
    disabled = logging.root.manager.disable
    if not load:
        logging.disable(logging.WARNING)  # a sketch has no weights, and need not say so
    try:
        model = open_clip.create_model(
            source,
            pretrained=None if path is None or ":" in source else str(path),
            load_weights=load,
            force_quick_gelu=bool(published.get("quick_gelu", False)),
            device=torch.get_default_device(),  # meta while planning
            weights_only=True,
        )
    except RuntimeError as error:
        raise ValueError(
            f"{path} does not hold the weights of {name}: {str(error).splitlines()[-1].strip()}"
        ) from error
    finally:
        logging.disable(disabled)
    return model, {key: published[key] for key in ("mean", "std", "interpolation") if published.get(key)}
