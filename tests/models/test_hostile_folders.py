"""Folders with changed files: 60 attacks on each reader and layout here, 10,000 in all by `make model-tests`."""

import pytest
from hostile import PACKAGES, TARGETS, attacked


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_folders(tmp_path, target):
    for name in (PACKAGES[target] or "").split():
        pytest.importorskip(name)
    assert attacked(tmp_path, target, 60, seed=1) > 20
