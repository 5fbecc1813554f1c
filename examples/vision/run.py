"""Teach the network to read drawn digits: eagerly, or with --generated from what `aotcompile build digits` wrote."""
import argparse
import importlib
import logging
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", nargs="?", const=str(HERE / "generated"), help="use generated code (default: generated/ beside this file)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the activation statistics that forward logs")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, stream=sys.stdout, format="%(message)s")

    sys.path.insert(0, str(HERE))
    if options.generated:
        import aotcompile
        package = aotcompile.load("digits", root=options.generated)
    else:
        package = importlib.import_module("digits")
    model_code = importlib.import_module(package.__name__ + ".model")
    drawing = importlib.import_module(package.__name__ + ".drawing")

    torch.manual_seed(0)
    model = package.DigitNet(threshold=0.6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    model.train()
    for step in range(options.steps + 1):
        loss = model_code.train_step(model, optimizer, *drawing.batch(32, generator))
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss:.4f}")

    model.eval()
    right = []
    for size in (64, 64, 8, 1, 1, 1, 1, 1, 1):
        right.append(model_code.accuracy(model, *drawing.batch(size, generator)))
    print("accuracy by batch: " + " ".join(f"{value:.2f}" for value in right))
    print(f"early exits: {model.early_exits} of {len(right)}")


if __name__ == "__main__":
    main()
