"""How build time grows with depth: a Llama-style model of 4 and of 24 equal layers, each built in a fresh process.

    python benchmarks/build_depth.py [--layers 4,24] [--training] [--backend native|aot_eager|eager] [--repeat 3]
    python benchmarks/build_depth.py --command [--training]         the whole command ``aotcompile build`` on a package that holds the model

Without ``--command`` only `aotcompile.compile` counts, after torch, transformers and the model are there. Prints seconds of processor time (the
process and its compilers) and by the clock, which on a busy machine says little, and the ratios of the last to the first. Depths take turns, so that
all see the same machine; the least of ``--repeat`` builds counts. Needs transformers.
"""
from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def llama(layers, training):
    torch.manual_seed(0)
    configuration = LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
                                max_position_embeddings=64, num_key_value_heads=2)
    ids = torch.randint(3, 99, (2, 16))
    keywords = {"input_ids": ids, "labels": ids.clone()} if training else {"input_ids": ids}
    return LlamaForCausalLM(configuration).train(training), keywords
"""
PACKAGE = {
    "language/__init__.py": "",
    "language/model.py": f"""{MODEL}

class Language(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels=None):
        return self.model(input_ids=input_ids, labels=labels)
""",
    "language/aot_inputs.py": """
from language.model import Language, llama


def language():
    model, keywords = llama({layers}, {training})
    return Language(model), (), keywords
""",
    "pyproject.toml": """
[tool.aotcompile]
packages = ["language"]

[[tool.aotcompile.entry]]
make = "language.aot_inputs:language"
training = {setting}
""",
}


def compile_here(layers: int, training: bool, backend: str) -> tuple[float, float]:
    """Processor seconds of one `aotcompile.compile` in this process, and seconds by the clock."""
    import torch

    import aotcompile

    names: dict[str, object] = {}
    exec(MODEL, names)
    model, keywords = names["llama"](layers, training)      # type: ignore[operator]
    before, start = sum(os.times()[:4]), time.perf_counter()
    with torch.set_grad_enabled(training):
        aotcompile.compile(model, example_inputs=((), keywords), backend=backend, training=training)
    return sum(os.times()[:4]) - before, time.perf_counter() - start


def compile_in_child(layers: int, training: bool, backend: str) -> tuple[float, float]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writer, " ".join(map(str, compile_here(layers, training, backend))).encode())
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


def run_command(layers: int, training: bool, backend: str) -> tuple[float, float]:
    """The same of the command, with the start of its process, its imports, the making of the model and what it writes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PACKAGE.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("{layers}", str(layers)).replace("{training}", str(training)).replace("{setting}", str(training).lower()))
        command = [sys.executable, "-m", "aotcompile.cli", "build", "language", "--target", "cpu", "--backend", backend]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"the build of {layers} layers failed:\n{done.stdout}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="4,24")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--repeat", type=int, default=3, help="the least of so many builds counts")
    parser.add_argument("--command", action="store_true", help="the whole command instead of one call")
    chosen = parser.parse_args()
    depths, build = list(map(int, chosen.layers.split(","))), run_command if chosen.command else compile_in_child
    builds = [[build(layers, chosen.training, chosen.backend) for layers in depths] for _ in range(chosen.repeat)]
    least = [tuple(map(min, zip(*found))) for found in zip(*builds)]                          # depth -> processor, clock
    for layers, (processor, clock) in zip(depths, least):
        print(f"{layers:3} layers: {processor:6.2f} s processor {clock:6.2f} s clock")
    print(f"ratio {least[-1][0] / least[0][0]:13.2f} {least[-1][1] / least[0][1]:16.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
