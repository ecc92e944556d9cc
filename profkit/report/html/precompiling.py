"""Runs when a wheel is built: the templates go into it as Python, too.

Nothing else of profkit is imported here, as what it needs is not installed then.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = Path("profkit/report/html")
_PREFIX = "profkit-templates-"


class CompiledTemplates(BuildHookInterface[Any]):
    """Compiles each template of the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the modules to the wheel. An editable install has none: its templates may change."""
        if version == "editable":
            return
        here, made = Path(self.root) / _HERE, Path(tempfile.mkdtemp(prefix=_PREFIX))
        engine = _load(here / "environment.py")
        (made / "__init__.py").write_text('"""The templates, compiled when the wheel was built."""\n', encoding="utf-8")
        for file in here.glob("*.j2"):
            code = engine.compile_template(file.name, file.read_text(encoding="utf-8"))
            (made / f"{engine.module_name(file.name)}.py").write_text(code, encoding="utf-8")
        for file in made.iterdir():
            build_data["force_include"][str(file)] = (_HERE / engine.COMPILED / file.name).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # hatch's
        """Remove the modules again: the wheel has them."""
        for folder in {Path(file).parent for file in build_data["force_include"]}:
            if folder.name.startswith(_PREFIX):
                shutil.rmtree(folder, ignore_errors=True)


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("template_engine", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
