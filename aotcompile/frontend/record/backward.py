"""Backward passes in the recording child.

A build of torch for CUDA refuses to run backward in a process forked after its autograd engine has started ("Unable to handle autograd's threading
in combination with fork-based multiprocessing"), and it has started where the user trained something before. The recorded graph is there all the
same: here its nodes are called one after the other, from the last to the first, so that the run goes on behind a ``loss.backward()``.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotcompile.frontend.torch_private import autograd_engine, fitted, put_autograd_engine, result_count, sequence_number, undefined_as_zeros


def run_backward_after_fork() -> None:
    """Let backward passes of this process, a forked one, run where torch's engine refuses them."""
    put_autograd_engine(EngineAfterFork(autograd_engine()))


class EngineAfterFork:
    """torch's engine, and where that refuses because of the fork, the nodes by themselves. Hooks on tensors and nodes are not called then."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_backward(self, tensors: Sequence[Any], gradients: Sequence[Any], keep_graph: bool, create_graph: bool, inputs: Sequence[Any] = (),
                     allow_unreachable: bool = False, accumulate_grad: bool = False) -> tuple[Any, ...]:
        try:
            return tuple(self._engine.run_backward(tensors, gradients, keep_graph, create_graph, inputs, allow_unreachable=allow_unreachable,
                                                   accumulate_grad=accumulate_grad) or ())
        except RuntimeError as error:
            if "fork-based multiprocessing" not in str(error):
                raise
        with torch.set_grad_enabled(create_graph):
            found = _Pass([_edge(each) for each in inputs], accumulate_grad).run([_edge(each) for each in tensors], gradients)
        if not accumulate_grad and not allow_unreachable and any(gradient is None for gradient in found):
            raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph.")
        return () if accumulate_grad else tuple(found)


def called(node: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a node. What it raises is the program's exception."""
    results = node(*gradients)
    return results if isinstance(results, tuple) else (results,)


def _edge(end: Any) -> GradientEdge:
    return end if isinstance(end, GradientEdge) else get_gradient_edge(end)


class _Pass:
    """One walk over the graph. ``inputs``: the edges whose gradients are wanted, none: those of all leaves; ``accumulates``: into ``.grad``."""

    def __init__(self, inputs: Sequence[GradientEdge], accumulates: bool) -> None:
        self._inputs, self._accumulates = inputs, accumulates
        self._arrived: dict[Any, dict[int, Any]] = {}           # node -> number of its result -> gradient of that

    def run(self, roots: Sequence[GradientEdge], gradients: Sequence[Any]) -> list[Any]:
        for root, gradient in zip(roots, gradients):
            self._add(root.node, root.output_nr, gradient)
        found: list[Any] = [None] * len(self._inputs)
        for node in _in_order({root.node for root in roots}):
            arrived = self._arrived.pop(node, {})
            wanted = [index for index, edge in enumerate(self._inputs) if edge.node == node]
            for index in wanted:
                found[index] = arrived.get(self._inputs[index].output_nr)
            is_leaf = not node.next_functions
            if arrived and (not is_leaf or self._accumulates and (wanted or not self._inputs)):
                self._spread(node, arrived)
        return found

    def _spread(self, node: Any, arrived: dict[int, Any]) -> None:
        """Call a node and give what comes out to those before it."""
        edges, given = node.next_functions, [arrived.get(number) for number in range(result_count(node))]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            results = called(node.apply, undefined_as_zeros(node, given))
            # The user's backward gives one gradient for each argument of forward; edges are for those that are tensors.
            edges = [edge for edge in edges if edge[0] is not None]
            results = tuple(result for result, needed in zip(results, node.needs_input_grad) if needed)
        else:
            results = called(node, given)
        for (following, number), gradient in zip(edges, results):
            if following is not None and gradient is not None:
                self._add(following, number, gradient)

    def _add(self, node: Any, number: int, gradient: Any) -> None:
        gradient, arrived = fitted(gradient, node, number), self._arrived.setdefault(node, {})
        arrived[number] = gradient if number not in arrived else arrived[number] + gradient


def _in_order(roots: Iterable[Any]) -> Iterator[Any]:
    """The nodes that the roots lead to, each after all that lead to it; of those that can be next the one made last, as torch has it."""
    leading: dict[Any, int] = dict.fromkeys(roots, 0)           # node -> how many edges from nodes to come lead to it
    open_nodes = list(leading)
    while open_nodes:
        for following, _ in open_nodes.pop().next_functions:
            if following is not None:
                if following not in leading:
                    open_nodes.append(following)
                leading[following] = leading.get(following, 0) + 1
    order = [(-sequence_number(node), index, node) for index, node in enumerate(leading) if not leading[node]]
    heapq.heapify(order)
    count = len(leading)
    while order:
        _, _, node = heapq.heappop(order)
        yield node
        for following, _ in node.next_functions:
            if following is not None:
                leading[following] -= 1
                if not leading[following]:
                    count += 1
                    heapq.heappush(order, (-sequence_number(following), count, following))
