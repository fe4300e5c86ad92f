"""How far from the machine: an update beside the measured matrix-product ceiling, decoding beside the measured copy bandwidth.

    python benchmarks/machine.py                 # fp32
    python benchmarks/machine.py --dtype bf16

The update's work is counted from the shapes (a product of [a, b] and [b, c] is 2abc; backward is twice forward; attention over the
prompt and the response's own tokens only; logits that are computed again count once). Decoding must read all weights and the keys and
values so far once a step; a copy reads and writes. A step's ceilings are the better of those before and after it, since the speed of a
machine drifts; figures are medians [least, most].
"""

from __future__ import annotations

import argparse
import time

import torch
from common import show
from ours import Around, compose, forced, train
from transformers import PreTrainedModel

WIDE = 2048  # of the square product; large enough that its operands' traffic does not count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("overrides", nargs="*")
    a = parser.parse_args()
    dtype = torch.float32 if a.dtype == "fp32" else torch.bfloat16
    config = compose(
        "model=smollm2-135m", "experiment=quickstart", "prompt.prefill=''", "algo.kl=none", "trainer=cpu", "rollout.n=5",
        f"trainer.precision={'32-true' if a.dtype == 'fp32' else 'bf16-mixed'}", f"rollout.dtype={str(dtype).removeprefix('torch.')}",
        "rollout.stop_at_answer=false", "rollout.max_response_tokens=128", "train.skip_no_signal=false", "train.questions=4",
        f"train.steps={a.steps + 1}", *a.overrides)  # fmt: skip
    agent = forced(config, given=False)
    rows: list[dict[str, float]] = []
    ceiling: dict[str, float] = {}

    def before() -> None:
        ceiling.update(product=product(dtype), copy=copied())

    def after(module) -> None:
        ceiling.update(product=max(ceiling["product"], product(dtype)), copy=max(ceiling["copy"], copied()))
        m, rollouts = module.last.metrics, module.last.rollouts
        n, new = config.rollout.n, config.rollout.max_response_tokens
        prompts = [len(rollouts[first].prompt_ids) for first in range(0, len(rollouts), n)]
        rows.append({
            **ceiling, "update": work(agent.model, prompts, n, new - 1) / m["time/update_s"],
            "decode": traffic(agent.model, prompts, n, new, dtype.itemsize) / m["time/generate_s"]})  # fmt: skip

    train(config, agent, Around(before, lambda: None, after))
    rows = rows[1:]
    print(f"{config.train.questions * config.rollout.n} sequences, {config.rollout.max_response_tokens} new tokens, {a.dtype}, {torch.get_num_threads()} threads\n")
    print("| | reached | ceiling | share |\n|---|---|---|---|")
    for name, top, unit in (("update", "product", "GFLOP/s"), ("decode", "copy", "GB/s")):
        reached, most = ([row[key] / 1e9 for row in rows] for key in (name, top))
        print(f"| {name}, {unit} | {show(reached)} | {show(most)} | {show([x / y for x, y in zip(reached, most, strict=True)])} |")


def product(dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product."""
    x, y = (torch.randn(WIDE, WIDE).to(dtype) for _ in range(2))
    return 2 * WIDE**3 / _fastest(lambda: x @ y)


def copied() -> float:
    """Bytes read and written a second by a copy that no cache holds."""
    x = torch.ones(2**27)
    y = torch.empty_like(x)
    return 2 * x.nbytes / _fastest(lambda: y.copy_(x))


def _fastest(call, times: int = 5) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return min(taken)


def work(model: PreTrainedModel, prompts: list[int], n: int, read: int) -> float:
    """FLOP of an update of groups of n responses of which `read` tokens are read and read + 1 predicted."""
    c = model.config
    linears = sum(p.numel() for name, p in model.get_decoder().named_parameters() if p.dim() == 2 and "embed" not in name)
    tokens = sum(prompt + n * read for prompt in prompts)
    pairs = sum(prompt**2 / 2 + n * read * (prompt + read / 2) for prompt in prompts)  # of a query and a key that it sees
    attention = 4 * pairs * c.num_hidden_layers * c.num_attention_heads * (getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads)
    head = 2 * len(prompts) * n * (read + 1) * c.vocab_size * c.hidden_size
    return 3 * (2 * linears * tokens + attention + head)


def traffic(model: PreTrainedModel, prompts: list[int], n: int, new: int, size: int) -> float:
    """Bytes that decoding must read: all weights but an embedding that is only looked up, and keys and values, once a step."""
    c = model.config
    weights = sum(p.numel() for name, p in model.named_parameters() if "embed" not in name or c.tie_word_embeddings)
    wide = c.num_key_value_heads * (getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads)
    cached = 2 * c.num_hidden_layers * wide * sum(new * prompt + n * new**2 / 2 for prompt in prompts)
    return size * (weights * new + cached)


if __name__ == "__main__":
    main()
