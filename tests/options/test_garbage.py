"""The collector's settings while building."""
from __future__ import annotations

import gc

import pytest

import aotcompile
from aotcompile.pipeline import single
from aotcompile.pipeline.garbage import fewer_collections


def test_settings_are_put_back() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), fewer_collections():
        assert gc.get_threshold()[0] > before[0]
        raise KeyError
    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_so() -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        with fewer_collections():
            assert gc.get_threshold() == before and not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_build_collects_rarely_from_beginning_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while kernels are compiled and files written: a full collection of a process with graphs in it costs as much as both."""
    seen = []
    monkeypatch.setattr(single, "analyze_callable", lambda *_, **__: seen.append(gc.get_threshold()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        aotcompile.compile(abs, example_inputs=((1,), {}))
    assert seen[0][0] > gc.get_threshold()[0]
