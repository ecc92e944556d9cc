"""The roofline in the reports: figures, tables and the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from profkit.cli.roofline import command
from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.diagnosis.rooflines import describe_roofline, why_no_roofline
from profkit.findings.roofline import Roofline
from profkit.report import render
from profkit.report.html.roofline import draw_roofline
from profkit.run.directory import Rates, Run
from profkit.trace.events import no_trace
from tests.savings.roofline.launching import call, steps_of
from tests.traces import Json, facts_of, json_of, op, step

GEMM, ADD = "nvjet_tst_128x128_64x4_NNT", "void at::native::vectorized_elementwise_kernel<4, FunctorAdd>"
PRODUCT = call("aten::mm", [[4096, 4096], [4096, 4096]], "c10::BFloat16", (GEMM, 277.8))
ADDITION = call("aten::add", [[8192, 8192], [8192, 8192]], "float", (ADD, 480.8), at=400, number=2)


def _found() -> Roofline:
    found = describe_roofline(steps_of(PRODUCT, ADDITION))
    assert found is not None
    return found


def test_the_values_say_what_was_reached():
    found = _found()
    assert found.device == "NVIDIA H100 80GB HBM3"
    assert found.origin == "data sheet"
    addition, product = found.points
    assert (addition.limit, product.limit) == ("memory", "arithmetic")
    assert product.of_possible == pytest.approx(0.5, abs=1e-3)
    assert product.shapes == "4096x4096, 4096x4096"
    assert [one.family for one in found.families] == ["elementwise", "matrix products"]
    assert sum(one.fraction for one in found.families) == pytest.approx(1.0, abs=1e-3)


def test_the_picture_has_both_roofs_and_a_numbered_point():
    picture = draw_roofline(_found())
    assert picture is not None
    assert [roof.label for roof in picture.roofs] == ["3.35 TB/s", "990 TFLOP/s bfloat16"]
    (dot,) = picture.dots  # an addition has no products
    assert dot.number == "2"
    ceiling = float(picture.roofs[1].path.split(",")[-1])
    assert dot.y > ceiling
    assert "50 % of possible" in dot.title


def test_numbers_of_points_on_top_of_each_other_stand_together():
    again = call("aten::mm", [[4096, 4096], [4096, 4160]], "c10::BFloat16", (GEMM, 270.0), at=400, number=2)
    far = call("aten::mm", [[4096, 64], [64, 4096]], "c10::BFloat16", (GEMM, 100.0), at=800, number=3)
    picture = draw_roofline(describe_roofline(steps_of(PRODUCT, again, far)))
    assert picture is not None
    assert [dot.number for dot in picture.dots] == ["3", "", "1, 2"]


def test_without_products_there_is_no_picture():
    assert draw_roofline(describe_roofline(steps_of(ADDITION))) is None
    assert draw_roofline(None) is None


def test_reports_show_it():
    diagnosis = diagnose(steps_of(PRODUCT, ADDITION))
    assert "How near the device's work comes" in render(diagnosis, "text")
    page = render(diagnosis, "html")
    assert 'class="roofline"' in page
    assert "mm 4096x4096, 4096x4096 bfloat16" in page
    assert json.loads(render(diagnosis, "json"))["roofline"]["points"][1]["operator"] == "aten::mm"


def _trace(path: Path, *calls: list[Json], card: str) -> Path:
    events = [event for one in calls for event in one]
    path.write_bytes(json_of(events, deviceProperties=[{"id": 0, "name": card}] if card else []))
    return path


def test_the_command_prints_tables_and_json(tmp_path: Path):
    trace = _trace(tmp_path / "trace.json", PRODUCT, ADDITION, card="NVIDIA H100 80GB HBM3")
    shown = CliRunner().invoke(command, [str(trace)])
    assert shown.exit_code == 0, shown.output
    assert "mm 4096x4096, 4096x4096 bfloat16" in " ".join(shown.output.split())
    values = json.loads(CliRunner().invoke(command, [str(trace), "--json"]).stdout)
    assert values["points"][0]["operator"] == "aten::add"


def test_the_user_may_name_the_card(tmp_path: Path):
    trace = _trace(tmp_path / "trace.json", PRODUCT, card="")
    unnamed = CliRunner().invoke(command, [str(trace)])
    assert unnamed.exit_code != 0
    named = CliRunner().invoke(command, [str(trace), "--card", "AMD Instinct MI300X", "--json"])
    assert json.loads(named.stdout)["bandwidth"] == 5.3e12
    unknown = CliRunner().invoke(command, [str(trace), "--card", "Voodoo 2"])
    assert unknown.exit_code != 0


def test_what_cannot_be_told_has_a_reason():
    assert "no operators" in why_no_roofline(Facts(no_trace()))
    assert "record_shapes" in why_no_roofline(facts_of([step(0, 0, 10), op("aten::mm", 1, 5)]))
    product = op("aten::mm", 1, 5, dims=[[4, 4], [4, 4]], types=["float", "float"])
    assert "profkit doctor" in why_no_roofline(facts_of([step(0, 0, 10), product]))
    assert "no data sheet is known for Voodoo 2" in why_no_roofline(steps_of(PRODUCT, card="Voodoo 2"))


def test_thousands_of_devices_with_long_names_are_told_in_a_line():
    cards = [{"id": number, "name": f"GPU {number}\x1b[31m" + "x" * 10_000} for number in range(5_000)]
    reason = why_no_roofline(facts_of([step(0, 0, 10), *PRODUCT], deviceProperties=cards))
    assert reason.startswith("no data sheet is known for GPU 0\\x1b[31mx")
    assert "or 4,997 more" in reason
    assert len(reason) < 500


def test_a_processor_has_a_roofline_if_its_rates_were_measured():
    product = op("aten::mm", 1, 5, dims=[[64, 64], [64, 64]], types=["float", "float"])
    run = Run(device="cpu", rates=Rates("some processor", 50e9, {"float32": 1e12}))
    found = describe_roofline(facts_of([step(0, 0, 10), product], run=run))
    assert found is not None
    assert found.origin == "measured"
    assert found.points[0].operations_per_s == pytest.approx(2 * 64**3 / 5e-6)
