"""What a trial with another batch changes in the program's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.collect.launch.other_batch import OtherBatch
from profkit.collect.program.outside_writes import OutsideWrites


class Refusing(OtherBatch):
    """A trial that raises where it would end."""

    def refuse(self, path: str) -> None:
        raise PermissionError(path)


@pytest.mark.parametrize("is_named", [True, False])
def test_saving_works_as_before_inside_and_is_heard_of_outside(tmp_path: Path, is_named: bool):
    (tmp_path / "inside").mkdir()
    save = Refusing(tmp_path / "result", 1, OutsideWrites(tmp_path / "inside", tmp_path))._checked(torch.save)

    def saved(to: Path) -> Any:
        return save(obj=[1], f=to) if is_named else save([1], to)

    saved(tmp_path / "inside" / "new.pt")
    assert torch.load(tmp_path / "inside" / "new.pt") == [1]
    with pytest.raises(PermissionError, match="outside"):
        saved(tmp_path / "outside.pt")
    assert not (tmp_path / "outside.pt").exists()
