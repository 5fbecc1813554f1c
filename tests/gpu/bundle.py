"""Kernels for the GPU tests, built ahead: ``python tests/gpu/bundle.py FOLDER [TARGET...]``, on a machine that needs no GPU."""
from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "triton"), str(Path(__file__).parents[2])]

from triton_programs import PROGRAMS  # noqa: E402
from triton_samples import every_operator, program_schedules  # noqa: E402

from aotcompile.codegen.triton.source import generate_triton  # noqa: E402
from aotcompile.package.triton_build import build_triton  # noqa: E402
from aotcompile.schedule.types import Schedule  # noqa: E402

OPERATOR_COUNT = 300


@dataclass(frozen=True)
class Bundle:
    """``programs`` and ``operators``: name -> schedule. ``files``: target folder name -> file name -> path relative to the bundle."""

    programs: dict[str, Schedule]
    operators: dict[str, Schedule]
    files: dict[str, dict[str, str]]
    kernels: tuple[str, ...]
    folder: Path = field(default=Path("."))

    def at(self, folder: Path) -> "Bundle":
        return replace(self, folder=folder)

    @property
    def read(self) -> Callable[[str], bytes]:
        return lambda path: (self.folder / path).read_bytes()


def make_bundle(folder: Path, targets: Sequence[str], jobs: int = 2) -> None:
    programs, operators = program_schedules(PROGRAMS), every_operator(OPERATOR_COUNT)
    source = generate_triton([*programs.values(), *operators.values()])
    files: dict[str, dict[str, str]] = {}
    for target in targets:
        name = target.replace(":", "-")
        (folder / name).mkdir(parents=True, exist_ok=True)
        files[name] = {}
        for file, content in build_triton(source, target, jobs=jobs).items():
            (folder / name / file).write_bytes(content)
            files[name][file] = f"{name}/{file}"
    (folder / "kernels.py").write_text(source.text, encoding="utf-8")
    (folder / "bundle.pickle").write_bytes(pickle.dumps(Bundle(programs, operators, files, source.kernels)))


if __name__ == "__main__":
    from bundle import make_bundle as make                  # by its module's name, which the pickle holds
    make(Path(sys.argv[1]), sys.argv[2:] or ["cuda:sm_90"])
