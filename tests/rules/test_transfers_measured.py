"""The rules of transfers, on recordings of which it was measured what the fix gives back."""

from __future__ import annotations

import json

import pytest

from profkit.diagnosis.pipeline import diagnose_path

RULES = {"pageable-transfer", "many-small-transfers", "repeated-transfer", "device-to-host-in-step"}
FORMS = ("pitfall", "pitfall.plain.pt.trace.json.gz")
MEASURED = {"pageable_transfer": ("pageable-transfer", 23, 21), "many_small_copies": ("many-small-transfers", 16, 13)}
"""The rule, the line, and the line of the function around it."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", MEASURED)
def test_what_is_predicted_is_within_seven_per_cent_of_what_was_measured(corpus, program, form):
    rule, line, definition = MEASURED[program]
    truth = json.loads((corpus / "h100" / "truth.json").read_text())[program]
    first, *others = diagnose_path(corpus / "h100" / "runs" / program / form).findings
    assert (first.rule, first.location.line) == (rule, line if form == "pitfall" else definition)
    assert first.saving.fraction == pytest.approx(truth["measured_fraction"], rel=0.07)
    assert not {other.rule for other in others} & (RULES | {"host-sync-in-step"})


def test_elsewhere_nothing_is_found_but_what_is_sent_from_memory_that_is_not_pinned(corpus):
    """Of plain recordings of the other programs and of all fixes."""
    paths = [
        path
        for path in (corpus / "h100" / "runs").glob("*/*.plain.pt.trace.json.gz")
        if not (path.parent.name in MEASURED and path.name.startswith("pitfall"))
    ]
    assert len(paths) > 30
    found = {path.parent.name: RULES & {one.rule for one in diagnose_path(path).findings} for path in paths}
    assert {name for name, rules in found.items() if rules} == set()


def test_a_training_loop_on_a_v100_waits_for_its_batches(corpus):
    path = corpus / "kineto" / "resnet50_workers4_v100.pt.trace.json.gz"
    (found,) = [one for one in diagnose_path(path).findings if one.rule in RULES]
    assert found.rule == "pageable-transfer"
    assert found.evidence["bytes_per_step"] == 19_267_840
