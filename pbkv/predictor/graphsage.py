"""The paper's backbone: two GraphSAGE layers on the call graph."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from pbkv.predictor.features import NODE_DIM


class GraphSage(nn.Module):
    """`forward(nodes [A, NODE_DIM], edges [2, E])` -> [A, width]. Messages flow against the calls: an agent is what may follow it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(NODE_DIM, width), SAGEConv(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        against = edges.flip(0)
        return self.second(torch.relu(self.first(nodes, against)), against)

    def alone(self, nodes: Tensor) -> Tensor:
        """Embeddings of agents without edges."""
        return self(nodes, torch.zeros((2, 0), dtype=torch.long))

    def own(self) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of what each layer does with a node itself: all there is for an agent without edges."""
        return [(layer.lin_r.weight, layer.lin_l.bias) for layer in (self.first, self.second)]
