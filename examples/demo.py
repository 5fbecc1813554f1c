"""Build the examples and run each eagerly and from generated code, side by side. `make demo` runs this.

    python examples/demo.py [signal] [vision] [gpt]
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = {"signal": "spectra", "vision": "digits", "gpt": "minigpt"}


def run(title, *words, folder):
    """Run a command, show it and what it prints; returns its exit code and its output."""
    print(f"$ {title}", flush=True)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    print(done.stdout.rstrip())
    print(f"  ({time.perf_counter() - start:.1f} s)\n", flush=True)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", choices=[*EXAMPLES, []], default=list(EXAMPLES))
    failed = []
    for name in parser.parse_args().examples:
        package, folder = EXAMPLES[name], HERE / name
        print(f"==== examples/{name}: package {package}\n")
        codes, outputs = [], []
        for title, words in (("python run.py", ["run.py"]), (f"aotcompile build {package}", ["-m", "aotcompile.cli", "build", package]),
                             ("python run.py --generated", ["run.py", "--generated"])):
            code, output = run(title, *words, folder=folder)
            codes.append(code)
            outputs.append(output)
            if code:
                break
        if any(codes):
            print(f"{name}: the last command failed with exit code {codes[-1]}\n")
            failed.append(name)
        else:
            print(f"{name}: eager and generated printed {'the same' if outputs[0] == outputs[2] else 'different text, see above'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
