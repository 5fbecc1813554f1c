"""The collector's settings while building."""
from __future__ import annotations

import gc

import pytest

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
