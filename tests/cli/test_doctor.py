"""The doctor says what is wrong, and how to mend it, without changing anything."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from socialrl_cli import doctor


def only(findings: object) -> doctor.Finding:
    (finding,) = findings  # type: ignore[misc]
    return finding


def test_a_missing_package_fails_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _name: ["numpy>=2", "no-such-package>=1", "extra; extra == 'x'"])
    finding = only(doctor.packages())
    assert (finding.state, finding.seen) == ("fail", "no-such-package missing")
    assert finding.remedy == "pip install -c constraints.txt -e ."


def test_an_empty_environment_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    monkeypatch.setattr(doctor, "installed", lambda _name: None)
    report = doctor.examine()
    assert not report["ready"]
    failed = [finding["name"] for finding in report["findings"] if finding["state"] == "fail"]
    assert failed == ["packages", "torch", "openai"]


def test_a_version_outside_the_range_fails_and_an_untested_one_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _name: ["numpy>=2", "torch>=2"])
    monkeypatch.setattr(doctor, "installed", {"numpy": "1.26.0", "torch": "2.13.0+cpu"}.get)
    assert only(doctor.packages()).seen == "numpy 1.26.0 (wanted >=2)"
    monkeypatch.setattr(doctor, "installed", {"numpy": "2.0.0", "torch": "2.13.0+cpu"}.get)
    monkeypatch.setattr(doctor, "tested_versions", lambda: {"numpy": "2.4.6", "torch": "2.13.0"})
    finding = only(doctor.packages())  # a build's own suffix is the same version
    assert (finding.state, finding.seen) == ("note", "numpy 2.0.0 (tested: 2.4.6)")


def test_the_constraints_pin_every_required_package() -> None:
    pins = doctor.tested_versions()
    required = [text.split(";")[0] for text in metadata.requires("socialrl") or [] if "extra" not in text]
    names = [text.split(">")[0].split("<")[0].split("=")[0].strip().lower() for text in required]
    assert [name for name in names if name not in pins] == []


def test_a_busy_second_core_is_noted_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    monkeypatch.setattr(doctor, "busy_shares", lambda _seconds: [0.02, 0.99])
    finding = only(doctor.cores())
    assert finding.state == "note"
    assert "busy now: 2% 99%" in finding.seen
    assert "OMP_NUM_THREADS=1" in finding.remedy
    monkeypatch.setattr(doctor, "busy_shares", lambda _seconds: [0.02, 0.1])
    assert only(doctor.cores()).state == "ok"


def test_a_folder_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOCIALRL_CACHE", str(tmp_path / "deep" / "cache"))
    monkeypatch.chdir(tmp_path)
    assert [finding.state for finding in doctor.folders()] == ["ok", "ok"]
    assert list(tmp_path.iterdir()) == []  # looked at, never changed
    monkeypatch.setattr(doctor.os, "access", lambda _path, _mode: False)
    assert [finding.state for finding in doctor.folders()] == ["fail", "fail"]


def test_the_doctor_says_which_vllm_would_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 9.9\n")
    script.chmod(0o755)
    monkeypatch.setenv("SOCIALRL_VLLM_PYTHON", str(script))
    finding = doctor.vllm()
    seen = f"--engine vllm starts {script} -m vllm.entrypoints.openai.api_server (9.9)"
    assert (finding.state, finding.seen) == ("ok", seen)
    monkeypatch.setenv("SOCIALRL_VLLM_PYTHON", str(tmp_path / "gone"))
    assert doctor.vllm().state == "note"
    assert str(tmp_path / "gone") in doctor.vllm().seen
