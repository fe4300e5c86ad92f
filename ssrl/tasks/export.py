"""`task=export`: a checkpoint or model as one Hugging Face folder, which transformers and vLLM load."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.tasks.build import build_trained
from ssrl.tasks.checkpoint import locate, with_run_config
from ssrl.tasks.show import relative


def main(config: Config, overrides: list[str]) -> None:
    """Write weights (adapters merged), configuration and tokenizer to `out`; by default to `export` in the run folder."""
    config = with_run_config(config, overrides)
    target = Path(config.out) if config.out else locate(config.ckpt)[0] / "export"
    if target.exists() and any(target.iterdir()):
        raise UserError(f"out={target} is not empty; choose another folder or remove it")
    loaded = build_trained(config)
    model = loaded.model.merge_and_unload() if hasattr(loaded.model, "peft_config") else loaded.model
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=".export-"))
    try:
        model.save_pretrained(part)
        loaded.tokenizer.save_pretrained(part)
        if target.exists():
            target.rmdir()
        os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    Console().print(f"exported to [bold]{relative(target)}[/bold]", highlight=False, soft_wrap=True)
