"""How build time grows with depth: a Llama-style model of 4 and of 24 equal layers, each built in a fresh process.

    python benchmarks/build_depth.py [--layers 4,24] [--training] [--backend native|aot_eager|eager] [--repeat 1]

Prints seconds of processor time (the process and its compilers; on a busy machine the clock says little), and the ratio of the last to the first.
Needs transformers.
"""
from __future__ import annotations

import argparse
import os
import sys


def build(layers: int, training: bool, backend: str) -> float:
    """Processor seconds of one build in this process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import aotcompile

    torch.manual_seed(0)
    configuration = LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
                                max_position_embeddings=64, num_key_value_heads=2)
    model = LlamaForCausalLM(configuration).train(training)
    ids = torch.randint(3, 99, (2, 16))
    keywords = {"input_ids": ids, "labels": ids.clone()} if training else {"input_ids": ids}
    before = sum(os.times()[:4])
    with torch.set_grad_enabled(training):
        aotcompile.compile(model, example_inputs=((), keywords), backend=backend, training=training)
    return sum(os.times()[:4]) - before


def in_child(layers: int, training: bool, backend: str) -> float:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, f"{build(layers, training, backend):.3f}".encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"the build of {layers} layers failed")
    return float(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="4,24")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--repeat", type=int, default=1, help="the least of so many builds counts")
    chosen = parser.parse_args()
    found = []
    for layers in map(int, chosen.layers.split(",")):
        found.append(min(in_child(layers, chosen.training, chosen.backend) for _ in range(chosen.repeat)))
        print(f"{layers:3} layers: {found[-1]:6.2f} s", flush=True)
    print(f"ratio {found[-1] / found[0]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
