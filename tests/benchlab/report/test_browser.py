"""The page in headless Chromium, opened from disk: it draws, its script runs, and the console stays silent."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from benchlab.report.export import write_report
from tests.benchlab.report.parsing import parse
from tests.benchlab.report.sample import SWEEP, made_manifest, made_records, made_run, made_selection, made_summary

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this host (Debian: apt-get install chromium)"),
]
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=4000",
]


def _chromium(profile, *arguments):
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, capture_output=True, timeout=90, check=False)


def _faults(stderr: bytes) -> list[str]:
    return [line for line in stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    records, stages = made_records(SWEEP[:4], seconds=15)
    hostile = "</script><img src=x onerror=\"document.title='pwned'\">"
    manifest = made_manifest(stages, endpoint={"url": "http://127.0.0.1:9/", "api": "chat", "model": hostile})
    run = made_run(folder / "run", records, manifest)
    summary = made_selection(made_summary(records, stages, slo={"clauses": ["ttft=500ms"], "target": 0.9}))
    path = folder / "run" / "report.html"
    write_report(run, summary, path)
    return path


@pytest.fixture(scope="module")
def dumped(page_file, tmp_path_factory):
    done = _chromium(tmp_path_factory.mktemp("profile"), "--dump-dom", f"{page_file.as_uri()}#theme=dark")
    return done.stdout.decode("utf-8", "replace"), _faults(done.stderr)


def test_no_console_line(dumped):
    assert dumped[1] == []


def test_the_script_ran_and_filled_the_table(dumped, page_file):
    page, still = parse(dumped[0]), parse(page_file.read_text(encoding="utf-8"))
    root = page.elements[0][1]
    assert root.get("class") == "scripted" and root.get("data-theme") == "dark"
    rows = sum(tag == "tr" for tag, _ in page.elements)
    assert rows > sum(tag == "tr" for tag, _ in still.elements)
    assert "matching rows" in page.words


def test_hostile_names_did_nothing(dumped):
    assert "<title>benchlab:" in dumped[0]
    assert not any(tag == "img" for tag, _ in parse(dumped[0]).elements)


@pytest.mark.parametrize(("size", "fragment"), [("1280,1600", ""), ("500,1600", "#theme=dark")])
def test_it_draws(page_file, tmp_path, size, fragment):
    """A picture of an empty page is a few kB; one with charts and text is far more."""
    shot = tmp_path / "shot.png"
    done = _chromium(
        tmp_path / "profile", f"--screenshot={shot}", f"--window-size={size}", page_file.as_uri() + fragment
    )
    assert _faults(done.stderr) == []
    assert shot.stat().st_size > 60_000


def test_the_policy_stops_what_slips_in(page_file, tmp_path):
    """With markup put in by hand, the policy still lets no script run and nothing load."""
    text = page_file.read_text(encoding="utf-8")
    slipped = (
        "<script>document.title='pwned'</script><img src='http://127.0.0.1:9/x.png' onerror=\"document.title='pwned'\">"
    )
    (tmp_path / "slipped.html").write_text(text.replace("<footer>", slipped + "<footer>"), encoding="utf-8")
    done = _chromium(tmp_path / "profile", "--dump-dom", (tmp_path / "slipped.html").as_uri())
    assert re.search(rb"<title>benchlab:", done.stdout)
    faults = _faults(done.stderr)
    assert faults and all("Content Security Policy" in line for line in faults)
