"""The same work again and again, replayed on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat

from meanmap.arrays import Array

State = list[Array]


class Repeated:
    """A function of some arrays that is called many times, with other numbers in the same shapes.

    On CUDA thousands of small operations take longer to ask for than to do. From the third call on
    they are recorded as one graph and replayed. The function must then keep to the device: nothing
    that it does may depend on numbers that are there.
    """

    PLAIN = 2  # calls before it is recorded, which also warm up what the function calls

    def __init__(self, function: Callable[[State], State]) -> None:
        self._function, self._calls = function, 0
        self._graph: Any = None
        self._given: State = []
        self._found: State = []

    def __call__(self, state: State) -> State:
        self._calls += 1
        recordable = array_api_compat.is_torch_array(state[0]) and state[0].device.type == "cuda"
        if self._calls <= self.PLAIN or not recordable:
            return self._function(state)
        import torch

        if self._graph is None:
            self._given = [part.clone() for part in state]
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(state[0].device), torch.cuda.graph(self._graph):
                self._found = self._function(self._given)
        for mine, part in zip(self._given, state, strict=True):
            mine.copy_(part)
        self._graph.replay()
        return [part.clone() for part in self._found]
