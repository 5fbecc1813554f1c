"""Options: precedence, spelling of keys, and messages for what is wrong."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from aotcompile.base.diagnostic import UsageError
from aotcompile.options import FIELDS, Options, find_configuration, load_configuration, load_entry_tables

Write = Callable[[dict[str, str]], Path]


def message(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_without_a_file(write_package: Write) -> None:
    write_package({})
    found = load_configuration(environment={})
    assert found.options == Options()
    assert set(found.origins.values()) == {"default"} and set(found.origins) == set(FIELDS)


def test_each_source_beats_the_one_before(write_package: Write) -> None:
    write_package({"pyproject.toml": '[tool.aotcompile]\nout = "file"\nbackend = "eager"\njobs = 3\ntargets = ["cpu"]\n'})
    environment = {"AOTCOMPILE_BACKEND": "aot_eager", "AOTCOMPILE_JOBS": "4", "AOTCOMPILE_TARGETS": "cpu:x86-64-v3, cuda:sm_90"}
    found = load_configuration(given={"jobs": 5, "fullgraph": None}, environment=environment)
    options = found.options
    assert (options.out, options.backend, options.jobs, options.fullgraph) == ("file", "aot_eager", 5, False)
    assert options.targets == ("cpu:x86-64-v3", "cuda:sm_90")
    assert [found.origins[n] for n in ("out", "backend", "jobs", "fullgraph")] == ["pyproject.toml", "AOTCOMPILE_BACKEND", "--jobs", "default"]


@pytest.mark.parametrize("training", ["true", "false", '"auto"'])
def test_training_has_three_values(write_package: Write, training: str) -> None:
    write_package({"aotcompile.toml": f"training = {training}"})
    assert load_configuration(environment={}).options.training is {"true": True, "false": False}.get(training)


def test_kebab_and_snake_case_are_the_same(write_package: Write) -> None:
    root = write_package({"a/aotcompile.toml": '[[entry]]\nmake = "p:f"\ndynamic-shapes = {x = {0 = "B"}}',
                          "b/aotcompile.toml": '[[entry]]\nmake = "p:f"\ndynamic_shapes = {x = {0 = "B"}}'})
    tables = [load_entry_tables(root / name, "none.toml")[0][0].values for name in "ab"]
    assert tables[0] == tables[1] == {"make": "p:f", "dynamic_shapes": {"x": {"0": "B"}}}


def test_the_nearest_file_is_taken(write_package: Write) -> None:
    root = write_package({"pyproject.toml": '[tool.aotcompile]\nout = "top"', "sub/pyproject.toml": "[project]\nname = 'x'", "sub/deep/mypkg/__init__.py": "",
                          "other/aotcompile.toml": "out = 'own'"})
    found = find_configuration(root / "sub" / "deep")
    assert found is not None and found[0] == root / "pyproject.toml"
    assert load_configuration(root / "other", environment={}).options.out == "other/own"      # relative to the file, seen from the current folder


def test_manifest_options_name_no_folder() -> None:
    record = Options(out="/somewhere/else", jobs=7).output_json()
    assert "out" not in record and "jobs" not in record and "/somewhere/else" not in str(record)
    assert {"targets", "backend", "dynamic", "training"} <= set(record)


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().out = "x"                                           # type: ignore[misc]


@pytest.mark.parametrize("text, words", [
    ('[tool.aotcompile]\n\nbackand = "eager"', ("AOT120", "pyproject.toml:3:1", "'backand'", "Did you mean 'backend'?")),
    ("[tool.aotcompile]\nzzz = 1", ("AOT120", "Known keys: packages, out, targets")),
    ("[tool.aotcompile]\nfull-graf = true", ("AOT120", "Did you mean 'fullgraph'?")),
    ("[tool.aotcompile]\njobs = 'many'", ("AOT121", "jobs must be a whole number from 0, got 'many'")),
    ("[tool.aotcompile]\njobs = true", ("AOT121", "jobs")),
    ("[tool.aotcompile]\ndynamic = 'some'", ("AOT121", '"auto", "all" or "none"')),
    ("[tool.aotcompile]\nbackend = 'fast'", ("AOT121", '"package.module:function"')),
    ("[tool.aotcompile]\ntargets = [1]", ("AOT121", "a list of strings")),
    ("[tool.aotcompile]\nfullgraph = 'yes'", ("AOT121", "true or false")),
    ("[tool.aotcompile\n", ("AOT122", "pyproject.toml")),
])
def test_what_is_wrong_is_named(write_package: Write, text: str, words: tuple[str, ...]) -> None:
    write_package({"pyproject.toml": text})
    found = message(lambda: load_configuration(environment={}))
    assert all(word in found for word in words), found


@pytest.mark.parametrize("text, words", [
    ("[[tool.aotcompile.entry]]\nmake = 'p:f'\ndims = {}\nfulgraph = true", ("AOT120", "'fulgraph' in entry 1", "'fullgraph'", ":4:1")),
    ("[[tool.aotcompile.entry]]\ntraining = true", ("AOT121", "entry 1 names neither make nor function")),
    ("[[tool.aotcompile.entry]]\nmake = 'p:f'\ntraining = 1", ("AOT121", "training of entry 1")),
    ("[tool.aotcompile]\nentry = 3", ("AOT121", "list of tables")),
])
def test_what_is_wrong_in_an_entry_is_named(write_package: Write, text: str, words: tuple[str, ...]) -> None:
    root = write_package({"pyproject.toml": text})
    found = message(lambda: load_entry_tables(root, "none.toml"))
    assert all(word in found for word in words), found


def test_environment_values_are_checked() -> None:
    assert "AOTCOMPILE_JOBS must be a whole number" in message(lambda: load_configuration(environment={"AOTCOMPILE_JOBS": "x"}))
    assert "AOTCOMPILE_RUN must be true or false" in message(lambda: load_configuration(environment={"AOTCOMPILE_RUN": "maybe"}))
    assert load_configuration(environment={"AOTCOMPILE_RUN": "off", "AOTCOMPILE_OUT": ""}).options.run is False


def test_unknown_flag_of_the_python_api() -> None:
    assert "Did you mean 'targets'?" in message(lambda: load_configuration(given={"target": ("cpu",)}, environment={}))


def test_text_of_the_configuration_reads_back(write_package: Write) -> None:
    import tomllib
    write_package({})
    found = load_configuration(given={"targets": ["cpu", "cuda:sm_90"], "training": True, "jobs": 2}, environment={})
    values = tomllib.loads(found.as_text())
    assert values["targets"] == ["cpu", "cuda:sm_90"] and values["training"] is True and values["jobs"] == 2 and values["dynamic"] == "auto"
    assert "# --jobs" in found.as_text()
