"""Build the small GPT, then measure it in fresh processes: eager, torch.compile with a fresh cache, and the generated package. `make demo` runs this.

    python examples/demo.py            the measurements
    python examples/demo.py --all      before them: build all three examples, run each eagerly and from generated code, compare what they print
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = {"signal": "spectra", "vision": "digits", "gpt": "minigpt"}
MODES = {"eager": "eager", "compile": "torch.compile", "aotcompile": "aotcompile"}
LATER, ROUNDS = 40, 3


# ---- the processes that are measured ------------------------------------------------------------------------------------------------------

def measure(mode, work):
    """In a fresh process: seconds of importing the package, of the first and of later calls of one kind of work. Prints one line of JSON."""
    import torch                                          # everybody needs it: not measured

    sys.path.insert(0, str(HERE / "gpt"))
    start = time.perf_counter()
    if mode == "aotcompile":
        import aotcompile
        package = aotcompile.load("minigpt", root=str(HERE / "gpt" / "generated"))
        inputs = __import__(f"{package.__name__}.aot_inputs", fromlist=["*"])
    else:
        from minigpt import aot_inputs as inputs
    imported = time.perf_counter() - start
    model, arguments = getattr(inputs, work)()
    run = torch.compile(model) if mode == "compile" else model

    def call():
        if work == "training":
            loss = run(*arguments)[1]
            loss.backward()
            model.zero_grad(set_to_none=True)
            return loss.detach()
        with torch.no_grad():
            return run(*arguments)[0]

    def timed():
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result

    first, result = timed()
    later = statistics.median([timed()[0] for _ in range(LATER)])
    facts = {"threads": torch.get_num_threads(), "import": imported, "first": first, "later": later, "sum": float(result.double().sum())}
    if mode == "aotcompile":
        from aotcompile.runtime import report
        facts["misses"] = sum(region.misses for region in report().regions)
        facts["hits"] = sum(region.hits for region in report().regions)
    print(json.dumps(facts))


def fresh(mode, work):
    """The medians of `ROUNDS` fresh processes (one for torch.compile, whose cold start is what is looked at: it takes long enough)."""
    found = []
    for _ in range(1 if mode == "compile" else ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run([sys.executable, __file__, "--measure", mode, work], stdout=subprocess.PIPE, text=True, env=environment, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median([one[key] for one in found]) for key in found[0]}


# ---- what is shown ------------------------------------------------------------------------------------------------------------------------

def show(title, results):
    eager = results["eager"]
    print(f"{title:<24}{'first call':>12}{'of eager':>10}{'later calls':>14}{'of eager':>10}{'import':>10}")
    for mode, name in MODES.items():
        one = results[mode]
        print(f"  {name:<22}{one['first'] * 1e3:>9.1f} ms{one['first'] / eager['first']:>9.2f}x"
              f"{one['later'] * 1e3:>11.3f} ms{one['later'] / eager['later']:>9.2f}x"
              f"{one['import'] * 1e3:>7.0f} ms")
    ours = results["aotcompile"]
    print(f"  threads {ours['threads']:.0f}; hits {ours['hits']:.0f}, misses {ours['misses']:.0f}; "
          f"first call {(ours['first'] - eager['first']) * 1e3:+.1f} ms against eager's; "
          f"result differs from eager's by {abs(ours['sum'] - eager['sum']):.1e} in its sum\n", flush=True)


def build(name):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "aotcompile.cli", "build", EXAMPLES[name], "--quiet"], cwd=HERE / name, stdout=subprocess.PIPE,
                          text=True)
    print(f"$ aotcompile build {EXAMPLES[name]}\n{done.stdout.rstrip()}\n", flush=True)
    if done.returncode:
        sys.exit(done.returncode)
    return time.perf_counter() - start


def same_text(name):
    """Run the example's script eagerly and from generated code; whether both printed the same."""
    texts = [subprocess.run([sys.executable, "run.py", *words], cwd=HERE / name, stdout=subprocess.PIPE, text=True, check=True).stdout
             for words in ([], ["--generated"])]
    print(f"{texts[1].rstrip()}\n{name}: eager and generated printed {'the same' if texts[0] == texts[1] else 'different text'}\n", flush=True)
    return texts[0] == texts[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all three examples, with their scripts")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return 0
    seconds = {name: build(name) for name in (EXAMPLES if options.all else ["gpt"])}
    same = all([same_text(name) for name in EXAMPLES]) if options.all else True
    results = {}
    for work, title in (("context", "forward, one context"), ("training", "forward and backward")):
        results[work] = {mode: fresh(mode, work) for mode in MODES}
        show(title, results[work])
    cold = sum(results[work]["compile"]["first"] for work in results)
    print(f"build of the GPT example, all of it: {seconds['gpt']:.1f} s; "
          f"torch.compile's cold first calls of these two: {cold:.1f} s, in every new process")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
