"""ATen graph -> `Program`.

`lower_graph` walks the graph once, in order. Every operator goes to its lowering (`registry.LOWERINGS`; one file per family) or becomes a library
call with exactly its arguments (`library`). The fake tensors in ``node.meta["val"]`` are the truth on dtypes, sizes and strides.

Example: ``relu(x + 1)`` for ``x: f32[4, s0]`` becomes one operation::

    Compute("relu", loops i0 < 4, i1 < s0, maximum(add(load x[i0*s0 + i1], 1.0), 0.0))
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.expression import Expression, Integer, Symbol, add, floor_divide
from aotcompile.ir.nodes import BufferReference, Check, Origin, Program, ProgramOutput, SizeSymbol
from aotcompile.lower import library
from aotcompile.lower.context import Context
from aotcompile.lower.graph_facts import GraphFacts, functional_name, mutated_arguments, tensor_root
from aotcompile.lower.operators import creation, indexing, joining, mutation, pointwise, prims, reduction, views  # noqa: F401  (they fill the registry)
from aotcompile.lower.registry import LOWERINGS, Lowering
from aotcompile.lower.symbols import SYMBOLIC, ScalarValue, SymbolTable, comparison, conjuncts, number_of, size_of
from aotcompile.lower.tensors import Tensor
from aotcompile.lower.torch_private import OpOverload, expression_as_traced


def lower_graph(graph_module: GraphModule, *, name: str, library_only: bool = False) -> Program:
    """Lower a functional ATen graph (``copy_`` to inputs at its end is allowed) to loop IR.

    Raises AotCompileError: AOT401 element type without a name in the IR, AOT402 device, AOT403/AOT404 sizes and numbers that cannot be computed,
    AOT405 an operation that is no ATen or library operator (a higher-order operator), AOT406 a large constant tensor."""
    return _Lowerer(graph_module, name, {} if library_only else LOWERINGS).run()


class _Lowerer:
    def __init__(self, graph_module: GraphModule, name: str, lowerings: Mapping[str, Lowering]) -> None:
        self.module = graph_module
        self.name = name
        self.lowerings = lowerings
        self.context = Context(SymbolTable(), GraphFacts(graph_module.graph, lowerings))
        self.values: dict[Node, Any] = {}
        self.inputs: list[str | None] = []
        self.size_symbols: list[SizeSymbol] = []
        self.scalar_inputs: list[tuple[int, Symbol]] = []
        self.input_symbols: set[str] = set()

    def run(self) -> Program:
        nodes = list(self.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self._bind_symbols(placeholders)
        self.input_symbols = set(self.context.symbols.sizes)
        for node in placeholders:
            self._placeholder(node)
        outputs: tuple[ProgramOutput, ...] = ()
        for node in nodes:
            if node.op == "output":
                outputs = self._outputs(node)
            elif node.op == "get_attr":
                self.values[node] = creation.constant_tensor(self.context, node, _attribute(self.module, str(node.target)))
            elif node.op == "call_function":
                if node not in self.context.facts.dead:
                    self.values[node] = self._call(node)
            elif node.op != "placeholder":
                raise AotCompileError(Diagnostic("AOT405", "error", f"{node.op} node {node.name} is no operator call"))
        context = self.context
        return Program(
            self.name,
            context.buffers,
            tuple(self.inputs),
            tuple(self.size_symbols),
            tuple(context.operations),
            outputs,
            tuple(self.scalar_inputs),
            self._ranges(),
        )

    def _ranges(self) -> dict[str, tuple[int | None, int | None]]:
        known = self.context.symbols.ranges()
        return {symbol.name: known[symbol.name] for symbol in self._symbols() if symbol.name in known}

    def _symbols(self) -> list[Symbol]:
        return sorted({value for value in self.context.symbols.sizes.values() if isinstance(value, Symbol)}, key=str)

    # ---- inputs

    def _bind_symbols(self, placeholders: list[Node]) -> None:
        """Find where each size symbol gets its value: plain ones first, then those that only occur in an expression (``2*s0``), solved for the
        symbol."""
        table = self.context.symbols
        composite: list[tuple[int, int, Any]] = []
        for number, node in enumerate(placeholders):
            value = node.meta.get("val")
            sizes = [(-1, value)] if isinstance(value, torch.SymInt) else list(enumerate(value.shape)) if isinstance(value, torch.Tensor) else []
            for dimension, size in sizes:
                if isinstance(size, torch.SymInt) and not (expression := table.note(size)).is_number:
                    if not expression.is_Symbol:
                        composite.append((number, dimension, expression))
                    elif not table.is_bound(str(expression)):
                        self._bind(Symbol(str(expression)), number, dimension)
                        table.bind(str(expression), Symbol(str(expression)))
        for number, dimension, expression in composite:
            unknown = [symbol for symbol in expression.free_symbols if not table.is_bound(str(symbol))]
            if len(unknown) == 1 and (solved := _solve(self.context, expression, unknown[0], Symbol(f"d{number}_{max(dimension, 0)}"))) is not None:
                self._bind(Symbol(f"d{number}_{max(dimension, 0)}"), number, dimension)
                table.bind(str(unknown[0]), solved)

    def _bind(self, symbol: Symbol, number: int, dimension: int) -> None:
        if dimension < 0:
            self.scalar_inputs.append((number, symbol))
        else:
            self.size_symbols.append(SizeSymbol(symbol, number, dimension))

    def _placeholder(self, node: Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            self.inputs.append(None)
            self.values[node] = value
            return
        root = tensor_root(self.context, node.name, value, Origin("input"))
        root.offset = size_of(self.context, value.storage_offset())
        root.buffer = self.context.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
        self.context.inputs[root.buffer] = None
        self.inputs.append(root.buffer)
        self.values[node] = self.context.tensor(root)

    # ---- operators

    def _call(self, node: Node) -> Any:
        if node.target is operator.getitem and not isinstance(node.meta.get("val"), SYMBOLIC):
            parent, position = node.args
            return self._argument(parent)[position]
        value = node.meta.get("val")
        if node.target is torch.ops.aten._local_scalar_dense.default:
            return self._item(node, value)
        if node.target is torch.ops.aten._assert_scalar.default:
            return self._check(node)
        if isinstance(value, (*SYMBOLIC, int, float, bool)):
            return value  # sizes are read off the fake run, not computed
        if not isinstance(node.target, OpOverload):
            if value is None and not node.users:
                return None  # asserts on sizes: they are guards
            raise AotCompileError(Diagnostic("AOT405", "error", f"{node.target} cannot be compiled: it is no tensor operator"))
        if (
            node.target.name().startswith(("aten::_assert", "aten::sym_constrain", "aten::_functional_assert", "aten::_assert_async"))
            and not node.users
        ):
            if node.target.name().startswith(("aten::sym_constrain", "aten::_assert_tensor_metadata")):
                return None
        arguments = tuple(self._argument(argument) for argument in node.args)
        keywords = {key: self._argument(argument) for key, argument in node.kwargs.items()}
        function = self.lowerings.get(str(node.target)) or self._in_place(node, arguments)
        result = NotImplemented
        if function is not None and self.context.facts.is_supported(node):
            positional, named = _by_position(node.target, arguments, keywords)
            result = function(self.context, node, *positional, **named)
        if result is NotImplemented:
            result = library.library_call(self.context, node, arguments, keywords)
        if node not in self.context.facts.views:
            for operand in node.all_input_nodes:
                if isinstance(tensor := self.values.get(operand), Tensor):
                    self.context.consumed(tensor.root)
        return result

    def _in_place(self, node: Node, arguments: tuple[Any, ...]) -> Any:
        """The lowering for an in-place operator (some decompositions use them) on a tensor that nothing else reads: as if it were functional."""
        function = self.lowerings.get(functional_name(node))
        target = arguments[0] if arguments else None
        if function is None or functional_name(node) == str(node.target) or not isinstance(target, Tensor):
            return None
        alone = (
            target.root.pending == 1
            and target.is_whole()
            and (target.root.buffer is None or self.context.memory(target.root.buffer) not in self.context.inputs)
        )
        return function if alone and mutated_arguments(node) == (node.args[0],) else None

    def _item(self, node: Node, value: Any) -> Any:
        """``.item()``: nothing happens here; where the number is used, it is loaded (or read, as a size)."""
        source = self._argument(node.args[0])
        if isinstance(value, SYMBOLIC) and not value.node.expr.is_number:
            tensor = self.context.stable_item(source, node)
            self.context.symbols.item(self.context.symbols.note(value), tensor)
            self.context.symbols.item(expression_as_traced(value), tensor)
        return value

    def _check(self, node: Node) -> None:
        """A condition on numbers that are data. One on the sizes of inputs alone is a guard, which holds."""
        condition = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
        if not isinstance(condition, torch.SymBool):
            return
        expression = expression_as_traced(condition)
        if {symbol.name for symbol in expression.free_symbols} <= self.input_symbols:
            return
        for alternatives in conjuncts(expression):
            self.context.emit(Check(tuple(comparison(self.context, part) for part in alternatives)))

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            value = self.values[argument]
            return number_of(self.context, value) if isinstance(value, SYMBOLIC) else value
        if isinstance(argument, (list, tuple)):
            return tuple(self._argument(part) for part in argument)
        if isinstance(argument, slice):
            raise AotCompileError(Diagnostic("AOT405", "error", "a slice is no argument of an operator"))
        return number_of(self.context, argument)

    # ---- outputs

    def _outputs(self, node: Node) -> tuple[ProgramOutput, ...]:
        returned = node.args[0]
        items = returned if isinstance(returned, (list, tuple)) else (returned,)
        outputs: list[ProgramOutput] = []
        for item in items:
            outputs.append(self._output(self._argument(item), {output.name for output in outputs if isinstance(output, BufferReference)}))
        return tuple(outputs)

    def _output(self, value: Any, returned: set[str]) -> ProgramOutput:
        if isinstance(value, Tensor):
            return BufferReference(self.context.realize_output(value, returned))
        if isinstance(value, ScalarValue):
            scalar = value.value
            tensor = self.context.temporary("number", value.dtype, (), "cpu", Origin("number"), lambda index: scalar)
            return BufferReference(self.context.realize(tensor))
        if value is None or isinstance(value, (Expression, bool, int, float)):
            return value
        raise AotCompileError(Diagnostic("AOT405", "error", f"a graph cannot return {value!r}"))


def _by_position(target: OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that the schema has by position but the graph gave by name, put in their place (lowerings name them as they like)."""
    places = [argument for argument in target._schema.arguments if not argument.kwarg_only]
    last = max((number for number, argument in enumerate(places) if argument.name in keywords), default=-1)
    filled = [keywords[place.name] if place.name in keywords else place.default_value for place in places[len(arguments) : last + 1]]
    names = {place.name for place in places}
    return (*arguments, *filled), {name: value for name, value in keywords.items() if name not in names}


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return module


def _solve(context: Context, expression: Any, unknown: Any, given: Symbol) -> Expression | None:
    """``unknown`` from ``given == expression``, where the expression is ``a*unknown + b`` with an integer a."""
    import sympy

    try:
        polynomial = sympy.Poly(expression, unknown)
    except sympy.PolynomialError:
        return None
    if polynomial.degree() != 1 or not polynomial.coeffs()[0].is_Integer:
        return None
    slope, intercept = polynomial.all_coeffs()
    rest = context.symbols.index(intercept, None)
    return floor_divide(add(given, -rest), Integer(int(slope)))
