"""Modules are loaded without a search for garbage; afterwards garbage is collected as before."""

import gc

import pytest

from fenceline.quiet_start import QuietStart


def test_garbage_is_collected_again_once_all_is_loaded():
    with QuietStart():
        assert not gc.isenabled()
        with QuietStart():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_garbage_is_collected_again_when_loading_failed():
    with pytest.raises(ImportError), QuietStart():
        raise ImportError
    assert gc.isenabled()
