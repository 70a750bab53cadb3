"""Predictions of one rank made known to all of its group, at the same scheduler step."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pbkv.predictor.budget import Answer
from pbkv.predictor.pack import Packed, pack, unpack

#: Numbers in the first message, which is enough for tens of workflows: one collective per step. More are sent in a second one.
FRAME = 4096


class Ranks:
    """`broadcast` fills an array on every rank with what it holds on the leader. All ranks call `share` for the same number of answers,
    which they know from the requests they have all seen; a rank that did not would leave the others waiting.
    """

    def __init__(self, leader: bool, broadcast: Callable[[Packed], None]) -> None:
        self.leader, self._broadcast = leader, broadcast

    def share(self, answers: Sequence[Answer], count: int) -> list[Answer]:
        """The leader's `count` answers, the same to the bit on all ranks, the leader's own included. Others give an empty sequence."""
        packed = pack(answers) if self.leader else np.zeros(0, np.int32)
        frame = np.zeros(FRAME + 1, np.int32)
        frame[0] = len(packed)
        frame[1 : len(packed) + 1] = packed[:FRAME]
        self._broadcast(frame)
        size = int(frame[0])
        if size <= FRAME:
            return unpack(frame[1 : size + 1], count)
        rest = np.resize(packed[FRAME:], size - FRAME)
        self._broadcast(rest)
        return unpack(np.concatenate([frame[1:], rest]), count)


def ranks_of(group: Any) -> Ranks | None:
    """Over the processes of a torch group on the CPU; None where one rank is all."""
    distributed = torch.distributed
    if group is None or distributed.get_world_size(group) == 1:
        return None
    source = distributed.get_global_rank(group, 0)

    def broadcast(numbers: Packed) -> None:
        distributed.broadcast(torch.from_numpy(numbers), src=source, group=group)

    return Ranks(distributed.get_rank(group) == 0, broadcast)


def is_leader(ctx: Any) -> bool:
    """Whether this process is the one of its group that predicts for all."""
    group = ctx.params.tp_cache_group
    return group is None or torch.distributed.get_rank(group) == 0
