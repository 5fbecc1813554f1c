"""How build time grows with depth: a Llama-style model of 4 and of 24 equal layers, each built in a fresh process.

    python benchmarks/build_depth.py [--layers 4,24] [--training] [--backend native|aot_eager|eager] [--repeat 3]

Prints seconds of processor time (the process and its compilers) and by the clock, which on a busy machine says little, and the ratios of the last to
the first. Depths take turns, so that all see the same machine; the least of ``--repeat`` builds counts. Needs transformers.
"""
from __future__ import annotations

import argparse
import os
import sys
import time


def build(layers: int, training: bool, backend: str) -> tuple[float, float]:
    """Processor seconds of one build in this process, and seconds by the clock."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import aotcompile

    torch.manual_seed(0)
    configuration = LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
                                max_position_embeddings=64, num_key_value_heads=2)
    model = LlamaForCausalLM(configuration).train(training)
    ids = torch.randint(3, 99, (2, 16))
    keywords = {"input_ids": ids, "labels": ids.clone()} if training else {"input_ids": ids}
    before, start = sum(os.times()[:4]), time.perf_counter()
    with torch.set_grad_enabled(training):
        aotcompile.compile(model, example_inputs=((), keywords), backend=backend, training=training)
    return sum(os.times()[:4]) - before, time.perf_counter() - start


def in_child(layers: int, training: bool, backend: str) -> tuple[float, float]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, " ".join(map(str, build(layers, training, backend))).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"the build of {layers} layers failed")
    processor, clock = map(float, text.split())
    return processor, clock


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="4,24")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--repeat", type=int, default=3, help="the least of so many builds counts")
    chosen = parser.parse_args()
    depths = list(map(int, chosen.layers.split(",")))
    builds = [[in_child(layers, chosen.training, chosen.backend) for layers in depths] for _ in range(chosen.repeat)]
    least = [tuple(map(min, zip(*found))) for found in zip(*builds)]                          # depth -> processor, clock
    for layers, (processor, clock) in zip(depths, least):
        print(f"{layers:3} layers: {processor:6.2f} s processor {clock:6.2f} s clock")
    print(f"ratio {least[-1][0] / least[0][0]:13.2f} {least[-1][1] / least[0][1]:16.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
