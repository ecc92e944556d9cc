"""What is kept of the compiler's records of breaks and compilations, and that nothing in them costs the program."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import profkit
from profkit.collect.program import compiled
from profkit.collect.program.compiled import read_compiled, read_generated_code
from profkit.run.directory import CallSite, Compilation, Compiled, GeneratedCode, GraphBreak, load_run

USERS = "/home/me/train.py"
LIBRARY = "/site-packages/lib.py"
PROGRAM = """\
import torch

@torch.compile(backend="eager", dynamic=False)
def scale(x):
    y = x * 2
    if y.sum().item() > 0:
        y = y + 1
    return y - 1

parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for i in range(9):
    (scale(torch.rand(4 + i // 3)).sum() * parameter.sum()).backward()
    optimizer.step()
"""


def is_user(file: str) -> bool:
    return file == USERS


def frame(file: str, line: int, name: str) -> SimpleNamespace:
    return SimpleNamespace(filename=file, lineno=line, name=name)


def broke(reason: str, *frames: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(reason=reason, user_stack=list(frames))


def metrics(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "compile_id": "2/0",
            "co_filename": USERS,
            "co_firstlineno": 5,
            "co_name": "f",
            "entire_frame_compile_time_s": 1.5,
            **fields,
        }
    )


def read() -> Compiled:
    found = read_compiled(is_user)
    assert found is not None
    return found


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for ``torch._dynamo.utils``."""
    utils = SimpleNamespace(graph_break_reasons=[], records=[], get_compilation_metrics=lambda: utils.records)
    monkeypatch.setitem(sys.modules, compiled._UTILS, utils)
    return utils


def test_no_compiler_is_imported_for_a_program_that_compiles_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, compiled._UTILS, raising=False)
    assert read_compiled(is_user) is None
    assert compiled._UTILS not in sys.modules


def test_repeated_breaks_are_kept_once_with_their_count(compiler):
    compiler.graph_break_reasons += [broke("item", frame(USERS, 8, "f"))] * 2
    assert read().breaks == (GraphBreak("item", (CallSite(USERS, 8, "f"),), 0, 2),)


def test_frames_of_libraries_below_the_users_are_kept_and_counted(compiler):
    stack = frame(USERS, 8, "f"), frame(LIBRARY, 1, "g"), frame(LIBRARY, 2, "h")
    compiler.graph_break_reasons.append(broke("x", *stack))
    (found,) = read().breaks
    assert (len(found.stack), found.library_frames) == (3, 2)


def test_breaks_only_in_libraries_or_in_profkits_hooks_are_left_out(compiler):
    hook = frame(str(Path(profkit.__file__).parent / "collect" / "steps.py"), 50, "_after_step")
    compiler.graph_break_reasons += [broke("x", frame(LIBRARY, 1, "g")), broke("x", frame(USERS, 8, "f"), hook)]
    assert read_compiled(is_user) is None


def test_a_compilation_has_its_function_time_and_reason(compiler):
    compiler.records += [metrics(), metrics(compile_id="2/1", recompile_reason="2/0: size mismatch")]
    found = read()
    site = CallSite(USERS, 5, "f")
    assert found.compilations == (
        Compilation(2, site, 1_500_000_000),
        Compilation(2, site, 1_500_000_000, "2/0: size mismatch"),
    )
    assert found.elapsed_ns > 0


def test_a_failed_compilation_belongs_to_the_function_with_its_number(compiler):
    given_up = {"co_filename": None, "co_name": None, "co_firstlineno": None, "fail_reason": "limit"}
    compiler.records += [metrics(), metrics(**given_up, compile_id="2/8"), metrics(**given_up, compile_id="9/8")]
    found = [(one.frame, one.site is None, one.failure) for one in read().compilations]
    assert found == [(2, False, ""), (2, True, "limit")]


def test_a_failed_compilation_names_the_line_if_it_is_the_users(compiler):
    failed = {"fail_reason": "x", "fail_user_frame_lineno": 7}
    compiler.records += [metrics(**failed, fail_user_frame_filename=file) for file in (USERS, LIBRARY)]
    assert [one.failed_at for one in read().compilations] == [CallSite(USERS, 7, "f"), None]


def test_an_older_compiler_records_less(compiler):
    compiler.records.append(SimpleNamespace(co_filename=USERS))
    del compiler.graph_break_reasons
    assert read().compilations == (Compilation(-1, CallSite(USERS, 0, ""), 0),)


@pytest.mark.parametrize(
    "records", [None, 7, [metrics(entire_frame_compile_time_s="soon")], [metrics(co_firstlineno="first")]]
)
def test_unexpected_records_cost_nothing(compiler, records):
    compiler.records = records
    assert read_compiled(is_user) is None


def test_what_the_caches_had_is_added_up_over_all_functions(compiler):
    compiler.records += [
        metrics(inductor_fx_local_cache_miss_count=1, inductor_compile_time_s=2.5, co_filename=LIBRARY),
        metrics(inductor_fx_local_cache_hit_count=2, remote_cache_time_saved_s=4.0, inductor_compile_time_s=0.5),
        metrics(inductor_fx_remote_cache_hit_count=1, inductor_compile_time_s=None),
        metrics(),
    ]
    assert read_generated_code() == GeneratedCode(3, 1, 2_500_000_000, 4_000_000_000)


@pytest.mark.parametrize("records", [[], [metrics()], None, [metrics(inductor_fx_local_cache_hit_count="many")]])
def test_without_a_lookup_nothing_is_known_of_caches(compiler, records):
    compiler.records = records
    assert read_generated_code() is None


def test_a_real_program_breaks_and_is_recompiled_at_its_own_lines(tmp_path, forks):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "run").mkdir()
    ended = forks.run("profkit.collect.launch.script:main", ["--directory=run", "--", "train.py"], tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = load_run(tmp_path / "run").compiled
    assert found is not None
    (broken,) = found.breaks
    assert [(site.line, site.source) for site in broken.stack] == [(6, "if y.sum().item() > 0:")]
    assert "item" in broken.reason
    sites = [one.site for one in found.compilations if one.site is not None]
    again = [one.reason for one in found.compilations if one.reason]
    assert {(site.line, site.function) for site in sites} == {(3, "scale"), (6, "torch_dynamo_resume_in_scale_at_6")}
    assert any("size mismatch" in reason for reason in again)
    assert 0 < sum(one.duration_ns for one in found.compilations) < found.elapsed_ns
