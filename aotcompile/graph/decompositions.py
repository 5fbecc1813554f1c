"""Which ATen operators are taken apart before lowering.

The table is torch's own core ATen decompositions, less those that would change what eager computes or how well it runs, plus a few that torch
keeps whole:

* out: whatever draws random numbers another way than eager (``bernoulli``), matrix products and attention (a library is better at them),
  operators whose decomposition is a lot of indexing (``im2col``, ``upsample_bicubic2d``, ``embedding_dense_backward``, ``roll``) or checks less
  than the operator does (``binary_cross_entropy`` outside of 0 to 1, ``index_add`` at -1), gives another dtype (``select_scatter``), or rounds
  elsewhere (``linspace``, ``addcmul``), and in-place forms (graphs are functional);
* in: softmax, layer, group and batch norm, vector norms: reductions with elementwise work around them, which we fuse.

Example: ``softmax(x, -1)`` becomes ``amax, sub, exp, sum, div``: one kernel over rows.

Checked on torch 2.13. Names that a torch version does not have are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from aotcompile.graph.layouts import with_layouts
from aotcompile.graph.plain_forms import with_plain_forms

KEPT_WHOLE = frozenset(
    """
    bernoulli _scaled_dot_product_flash_attention_for_cpu baddbmm dot vdot mv _euclidean_dist pdist gru lstm rnn_relu rnn_tanh
    im2col col2im isin max_unpool2d max_unpool3d embedding_dense_backward resize_as is_complex item all
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_lanczos2d_aa _chunk_cat renorm multilabel_margin_loss_forward
    binary_cross_entropy index_add index_copy index_fill select_scatter multi_margin_loss
    std std_mean linspace addcmul addcdiv lerp roll _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
""".split()
)
"""ATen operators (all overloads) that core ATen decomposes and we do not."""

TAKEN_APART = frozenset(
    """
    _softmax.default _log_softmax.default native_layer_norm.default native_group_norm.default linalg_vector_norm.default ldexp.Tensor
    native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional.default
    _native_batch_norm_legit_no_training.default _batch_norm_with_update_functional.default _batch_norm_no_update.default batch_norm_backward.default
""".split()
)
"""ATen overloads that core ATen keeps and we decompose."""


@lru_cache(maxsize=1)
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, decomposition_table

    core = core_aten_decompositions()
    table: dict[Any, Callable[..., Any]] = {}
    for operator, function in decomposition_table.items():
        namespace, _, full_name = str(operator).partition(".")
        name, _, overload = full_name.partition(".")
        if namespace != "aten" or overload.endswith("out") or overload == "grad_input" or (name.endswith("_") and not name.startswith("__")):
            continue
        if full_name in TAKEN_APART or (operator in core and name not in KEPT_WHOLE and not name.startswith("fft_")):
            table[operator] = function
    return with_plain_forms(with_layouts(table))


def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """Operator overload -> decomposition, for AOTAutograd and `make_fx`. A fresh dict."""
    return dict(_table())
