"""GRPO steps of TRL, one a turn: the other side of `beside_trl.py`, which starts it with a Python that has TRL (tried: 1.16).

Every response has the full length: sampled (`min_new_tokens`), or random tokens where they are `--given`. A turn's answer is seconds of
generate (with decoding and scoring) and update (forward, backward, optimiser); of a turn named "peak", the peak memory of the update, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from common import answer, forget_peak, my_turn, peak_mib, resident_mib  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder")
    parser.add_argument("prompts", help="JSON list of texts, one a question, in the order of the steps")
    parser.add_argument("--questions", type=int, required=True)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--given", action="store_true")
    a = parser.parse_args()
    trainer = build(a)
    clock = Clock()
    inner = trainer._generate_and_score_completions

    def generated(inputs: list) -> dict:
        started = time.perf_counter()
        found = inner(inputs)
        clock.generated(time.perf_counter() - started)
        return found

    trainer._generate_and_score_completions = generated
    trainer.add_callback(clock)
    trainer.train()


class Clock(TrainerCallback):
    """Waits for its turn before a step, and answers after it."""

    def on_step_begin(self, args: GRPOConfig, state: object, control: object, **kwargs: object) -> object:
        self.turn = my_turn()
        control.should_training_stop = not self.turn
        return control

    def generated(self, seconds: float) -> None:
        self.generate = seconds
        if self.turn == "peak":
            forget_peak()
            self.before = resident_mib()
        self.update = time.perf_counter()

    def on_step_end(self, *_: object, **kwargs: object) -> None:
        now = time.perf_counter()
        update = now - self.update
        memory = {"peak": peak_mib(), "before": self.before} if self.turn == "peak" else {}
        answer({"generate": self.generate, "update": update, "step": self.generate + update, **memory})


def build(a: argparse.Namespace) -> GRPOTrainer:
    prompts = json.loads(Path(a.prompts).read_text())
    tokenizer = AutoTokenizer.from_pretrained(a.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
    draw = random.Random(0)

    def given(asked: list[str], trainer: GRPOTrainer) -> dict[str, object]:
        ids = [[draw.randrange(model.config.vocab_size - 1) for _ in range(a.new)] for _ in asked]
        return {"prompt_ids": tokenizer(asked).input_ids, "completion_ids": ids, "logprobs": None}

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=a.bf16, per_device_train_batch_size=a.questions * a.n, num_generations=a.n,
        max_completion_length=a.new, max_steps=a.steps, learning_rate=1e-6, report_to=[], use_vllm=False, beta=0.0,
        temperature=a.temperature, gradient_checkpointing=False, save_strategy="no", seed=0, disable_tqdm=True, logging_strategy="no",
        shuffle_dataset=False, generation_kwargs={"min_new_tokens": a.new})  # fmt: skip
    return GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [len(set(c.split())) / 100 for c in completions], args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]), processing_class=tokenizer,
        rollout_func=given if a.given else None)  # fmt: skip


if __name__ == "__main__":
    main()
