"""The other backbone: two R-GCN layers, with calls and their reverse as two relations."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import RGCNConv

from pbkv.predictor.features import NODE_DIM


class Rgcn(nn.Module):
    """`forward(nodes [A, NODE_DIM], edges [2, E])` -> [A, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = RGCNConv(NODE_DIM, width, 2), RGCNConv(width, width, 2)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        both = torch.cat([edges, edges.flip(0)], 1)
        kind = torch.arange(2).repeat_interleave(edges.shape[1])
        return self.second(torch.relu(self.first(nodes, both, kind)), both, kind)

    def alone(self, nodes: Tensor) -> Tensor:
        """Embeddings of agents without edges."""
        return self(nodes, torch.zeros((2, 0), dtype=torch.long))

    def own(self) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of what each layer does with a node itself: all there is for an agent without edges."""
        return [(layer.root.T, layer.bias) for layer in (self.first, self.second)]
