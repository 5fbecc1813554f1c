"""``aotcompile report``: a built package summarized from its ``manifest.json``, without torch and without importing it."""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.reports import count, table_text


@dataclass(frozen=True)
class ManifestReport:
    """The manifest's content as read; see DESIGN 2.5 for its form."""

    folder: str
    manifest: dict[str, Any]

    @property
    def ok(self) -> bool:
        return True

    def rows(self) -> list[tuple[str, int, str]]:
        """(region with its module, number of variants, lines)."""
        return [(f"{module}:{region}", len(facts.get("variants", [])), "-".join(map(str, facts.get("lines", []))))
                for module, regions in sorted(self.manifest.get("regions", {}).items()) for region, facts in regions.items()]

    def targets(self) -> list[str]:
        return sorted({target for binaries in self.manifest.get("kernels", {}).values() for target in binaries})

    def as_text(self) -> str:
        manifest = self.manifest
        built = ", ".join(f"{name} {value}" for name, value in sorted(manifest.get("built_with", {}).items()))
        lines = [f"{manifest.get('package')} in {self.folder}", f"  built with {built}", f"  targets {', '.join(self.targets()) or 'none'}"]
        lines += table_text(("region", "variants", "lines"), [(name, str(variants), where) for name, variants, where in self.rows()])
        breaks, eager = manifest.get("breaks", []), manifest.get("eager", [])
        lines += [f"  break {_line(b)}" for b in breaks] + [f"  eager {_line(e)}" for e in eager]
        lines.append(", ".join((count(len(self.rows()), "region"), count(len(breaks), "break"), count(len(manifest.get("files", {})), "file"))))
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Any]]:
        return [{"region": name, "variants": variants, "lines": where} for name, variants, where in self.rows()] + [
            {"package": self.manifest.get("package"), "folder": self.folder, "targets": self.targets(), "breaks": self.manifest.get("breaks", []),
             "eager": self.manifest.get("eager", [])}]


def _line(record: Any) -> str:
    if not isinstance(record, dict):
        return str(record)
    place = f"{record['file']}:{record['line']} " if record.get("file") else ""
    return f"{record.get('code', '')} {place}{record.get('reason') or record.get('message') or ''}".strip()


def read_manifest(package: str, out: str) -> ManifestReport:
    """The manifest of a package built to ``out``. Raises AOT191 where there is none, AOT192 where it cannot be read."""
    folder = Path(out) / Path(package.rstrip("/")).name.replace(".", "/")
    path = folder / "manifest.json"
    if not path.is_file():
        raise AotCompileError(Diagnostic("AOT191", "error", f"{package} is not built: there is no {path.as_posix()}.", None,
                                         f"Run aotcompile build {package}, or name its output folder with -o."))
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AotCompileError(Diagnostic("AOT192", "error", f"{path.as_posix()} cannot be read: {error}.", None, "Build again.")) from None
    return ManifestReport(folder.as_posix(), manifest)
