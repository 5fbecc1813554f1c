"""Describe a signal and gate it block by block: eagerly, or with --generated from what `aotcompile build spectra` wrote."""
import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", nargs="?", const=str(HERE / "generated"), help="use generated code (default: generated/ beside this file)")
    parser.add_argument("--blocks", type=int, default=24)
    options = parser.parse_args()

    sys.path.insert(0, str(HERE))
    if options.generated:
        import aotcompile
        package = aotcompile.load("spectra", root=options.generated)
    else:
        package = importlib.import_module("spectra")
    sources = importlib.import_module(package.__name__ + ".sources")

    blocks = sources.signal(options.blocks)
    features = package.describe(blocks)
    print("block  loudness  roughness  distance")
    for number, (loudness, roughness, distance) in enumerate(features.tolist()[:5]):
        print(f"{number:5d}  {loudness:8.4f}  {roughness:9.4f}  {distance:8.4f}")

    follower = package.Follower()
    energy = sum(float(follower.feed(block).square().sum()) for block in blocks)
    print(f"after the gate: energy {energy:.3f}, level {float(follower.level):.4f}, {follower.blocks} blocks, loud ones {follower.loudest}")


if __name__ == "__main__":
    main()
