"""The critic of actor-critic algorithms: the value of the state before each trained token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssrl.policy.attention import Packed
from ssrl.policy.logprobs import row_hidden


class Critic(nn.Module):
    """A linear head on hidden states: of a trunk of its own, or (trunk None) of the policy's, on which it then pulls too.

    The state before a response's first token is the end of the prompt, which the rollouts of a group share.
    """

    def __init__(self, model: PreTrainedModel, *, shared: bool) -> None:
        """`model`: whose trunk is taken over, or, if `shared`, only looked at for its width."""
        super().__init__()
        self.trunk = None if shared else model.get_decoder()
        self.head = nn.Linear(model.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # values begin at 0, so the first advantages are the rewards
        nn.init.zeros_(self.head.bias)

    def forward(self, hidden: Tensor | None, row: Packed) -> Tensor:
        """[M] float32 values of a packed row. `hidden` [M, H]: the policy's states at `row.source`; read where the trunk is shared."""
        if self.trunk is not None:
            hidden = row_hidden(self.trunk, row)
        with torch.autocast(hidden.device.type, enabled=False):
            return self.head(hidden.float())[:, 0]
