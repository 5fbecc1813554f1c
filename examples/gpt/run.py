"""Train the small GPT for some steps and let it write: eagerly, or with --generated from what `aotcompile build minigpt` wrote."""
import argparse
import importlib
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", nargs="?", const=str(HERE / "generated"), help="use generated code (default: generated/ beside this file)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--letters", type=int, default=60)
    options = parser.parse_args()

    sys.path.insert(0, str(HERE))
    if options.generated:
        import aotcompile
        package = aotcompile.load("minigpt", root=options.generated)
    else:
        package = importlib.import_module("minigpt")
    training = importlib.import_module(package.__name__ + ".training")
    sampling = importlib.import_module(package.__name__ + ".sampling")

    characters = training.Characters.from_file(HERE / "data" / "proverbs.txt")
    torch.manual_seed(0)
    model = package.GPT(package.GPTConfig())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    model.train()
    for step in range(options.steps + 1):
        inputs, targets = characters.batch(4, model.config.block_size, generator)
        loss = training.train_step(model, optimizer, inputs, targets)
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss:.4f}")

    model.eval()
    start = torch.tensor([characters.encode("A ")])
    tokens = sampling.sample(model, start, stop_token=characters.encode("\n")[0], limit=options.letters)
    print(f"sampled: {characters.decode(tokens[0]).strip()!r}")


if __name__ == "__main__":
    main()
