"""A fix is shown as a changed line if the line alone proves it."""

from __future__ import annotations

import pytest

from profkit.source.changes import Argument, ChangedCall, MadeOnDevice, rewrite_line

LEFT = ChangedCall("zero_grad", (Argument("set_to_none", None, (False,)),))
OFF = ChangedCall("set_detect_anomaly", (Argument("mode", "False", (True,), position=0),))
WORKERS = ChangedCall(
    "DataLoader",
    (
        Argument("num_workers", "4", (0,), absent=True, position=5),
        Argument("persistent_workers", "True", (True, False), absent=True),
    ),
)
MADE = MadeOnDevice()
FOUR = "num_workers=4, persistent_workers=True"


@pytest.mark.parametrize(
    ("rewrite", "before", "after"),
    [
        (LEFT, "optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()"),
        (LEFT, "self.net.zero_grad( set_to_none = False )  # new", "self.net.zero_grad(  )  # new"),
        (OFF, "with torch.autograd.set_detect_anomaly(True):", "with torch.autograd.set_detect_anomaly(False):"),
        (OFF, "set_detect_anomaly(check_nan=False, mode=True)", "set_detect_anomaly(check_nan=False, mode=False)"),
        (WORKERS, "loader = DataLoader(data, 32)  # (a)", f"loader = DataLoader(data, 32, {FOUR})  # (a)"),
        (WORKERS, "DataLoader(data, num_workers=0,)", f"DataLoader(data, {FOUR[:13]}, {FOUR[15:]})"),
        (WORKERS, "DataLoader(a, 1, False, None, None, 0)", f"DataLoader(a, 1, False, None, None, 4, {FOUR[15:]})"),
        (WORKERS, "for x in DataLoader(f('ä)')):", f"for x in DataLoader(f('ä)'), {FOUR}):"),
        (MADE, "x = torch.zeros(8, 3).to(device)", "x = torch.zeros(8, 3, device=device)"),
        (MADE, "m = n + torch.ones(n,).to('cuda:1') * 2", "m = n + torch.ones(n, device='cuda:1') * 2"),
        (MADE, "i = torch.arange(x.size(0)).cuda()", 'i = torch.arange(x.size(0), device="cuda")'),
        (MADE, "i = torch.eye(3).to(x.device, non_blocking=True)", "i = torch.eye(3, device=x.device)"),
    ],
)
def test_only_the_faulty_part_of_the_line_is_changed(rewrite: object, before: str, after: str) -> None:
    assert rewrite_line(before, rewrite) == after


@pytest.mark.parametrize(
    ("rewrite", "line"),
    [
        (LEFT, "p.grad.zero_()"),
        (LEFT, "optimizer.zero_grad()"),
        (LEFT, "optimizer.zero_grad(set_to_none=True)"),
        (LEFT, "optimizer.zero_grad(set_to_none=flag)"),
        (LEFT, "optimizer.zero_grad(set_to_none=0)"),
        (LEFT, "optimizer.zero_grad(**options, set_to_none=False)"),
        (LEFT, "a.zero_grad(set_to_none=False); b.zero_grad(set_to_none=False)"),
        (LEFT, "optimizer.zero_grad("),
        (LEFT, "# optimizer.zero_grad(set_to_none=False)"),
        (LEFT, "log('optimizer.zero_grad(set_to_none=False)')"),
        (OFF, "torch.autograd.set_detect_anomaly(args.debug)"),
        (OFF, "torch.autograd.set_detect_anomaly()"),
        (OFF, "with torch.autograd.detect_anomaly():"),
        (WORKERS, "loader = DataLoader(data, num_workers=args.workers)"),
        (WORKERS, "loader = DataLoader(data, num_workers=2)"),
        (WORKERS, "loader = DataLoader(*given)"),
        (WORKERS, "loader = DataLoader(data, **options)"),
        (WORKERS, "loader = DataLoader("),
        (WORKERS, "train, test = DataLoader(a), DataLoader(b)"),
        (WORKERS, "for x, y in loader:"),
        (MADE, "x = torch.rand(8).to(device)"),
        (MADE, "x = torch.zeros(8).to(torch.float64)"),
        (MADE, "x = torch.zeros(8).to('cpu')"),
        (MADE, "x = torch.zeros(8).to(other)"),
        (MADE, "x = torch.zeros(8).to(device, torch.half)"),
        (MADE, "x = torch.zeros(8, out=y).to(device)"),
        (MADE, "x = torch.zeros(8, device='cpu').to(device)"),
        (MADE, "x = np.zeros(8).to(device)"),
        (MADE, "x = mask.to(device)"),
        (MADE, "x, y = torch.zeros(8).to(device), torch.ones(8).to(device)"),
        (MADE, ""),
        (MADE, "\0"),
    ],
)
def test_a_line_that_does_not_prove_its_change_is_left_alone(rewrite: object, line: str) -> None:
    assert rewrite_line(line, rewrite) is None
