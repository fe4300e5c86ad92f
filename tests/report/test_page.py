import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from ssrl.errors import UserError
from ssrl.report.page import embedded, write_page
from ssrl.report.summary import summary_html
from ssrl.runlog.folder import RunFolder

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"><b id=evil>&lt;"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of the data element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def tags(self, name: str) -> list[dict]:
        return [attributes for tag, attributes in self.found if tag == name]


def data_of(text: str) -> list:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_shows_what_was_run_and_how_it_ended(tmp_path, make_run):
    page = write_page(make_run(tmp_path, steps=3).path)
    text = page.read_text()
    assert page == tmp_path / "report.html"
    for words in (
        "smollm2-135m",
        "fullsim",
        "grpo",
        "quickstart",
        "done",
        "python -m ssrl seed=0",
        "+0.260",
        "Exact match",
        "best checkpoint: step 32",
    ):
        assert words in text, words
    assert len(data_of(text)) == 3 * 48 + 2 * 6


def test_the_page_asks_for_nothing_from_outside(tmp_path, make_run):
    text = write_page(make_run(tmp_path, steps=2).path).read_text()
    elements = Elements(text)
    assert not [attributes for _, attributes in elements.found if {"src", "href", "srcset", "data", "action"} & set(attributes)]
    assert "@import" not in text and "url(" not in text
    (policy,) = [attributes["content"] for attributes in elements.tags("meta") if attributes.get("http-equiv")]
    assert policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy


def test_hostile_text_creates_no_element(tmp_path, make_run):
    harmless = Elements(write_page(make_run(tmp_path / "a", steps=2, engine=True).path).read_text())
    text = write_page(make_run(tmp_path / "b", steps=2, engine=True, hostile=HOSTILE).path).read_text()
    elements = Elements(text)
    assert len(elements.tags("script")) == len(harmless.tags("script")) == 2
    assert not elements.tags("img") and not elements.tags("b")
    assert any(HOSTILE in item["question"] and HOSTILE in "".join(item["text"]) for item in data_of(text))


def test_embedded_json_is_the_same_value_without_an_opening_bracket():
    value = {"a": "</script><!--\u2028", "b": [1, None]}
    assert "<" not in embedded(value) and json.loads(embedded(value)) == value


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.claim(), folder.tracked("python -m ssrl"):
        text = write_page(tmp_path).read_text()
    assert "running" in text and "No metrics yet" in text and "appear here when the run ends" in text


def test_a_killed_run_is_not_called_running(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.claim(), folder.tracked("python -m ssrl"):
        status = (tmp_path / "status.json").read_bytes()
    (tmp_path / "status.json").write_bytes(status)
    assert "stopped without notice" in write_page(tmp_path).read_text()


def test_a_failed_run_shows_its_traceback(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(ValueError), folder.tracked("python -m ssrl"):
        raise ValueError("found <nothing>")
    assert "ValueError: found &lt;nothing&gt;" in write_page(tmp_path).read_text()


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(UserError, match="is not a run folder"):
        write_page(tmp_path)


def test_the_summary_marks_better_and_worse_and_leaves_neutral_figures_alone():
    summary = {"before": {"test/a/em": 0.5, "test/a/searches": 1.0, "test/b/f1": 0.2}, "after": {"test/a/em": 0.25, "test/a/searches": 2.0}}
    text = summary_html(summary)
    assert text.count("<table") == 2
    assert '<td class="num bad">−0.250</td>' in text and '<td class="num">+1.00</td>' in text and '<td class="num">–</td>' in text


def test_neither_report_nor_run_log_imports_torch_or_lightning():
    code = (
        "import sys, ssrl.report.page, ssrl.report.curves, ssrl.runlog.mirrors; print({'torch', 'lightning', 'wandb'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_draws_curves_and_rollouts_and_runs_nothing_hostile(tmp_path, make_run):
    page = write_page(make_run(tmp_path / "run", steps=24, engine=True, hostile=HOSTILE).path)
    dom = Elements(rendered := browse(f"{page.as_uri()}#rollout-7", tmp_path / "profile"))
    assert re.search("<title>(.*?)</title>", rendered)[1].endswith("/run")
    assert [attributes for attributes in dom.tags("b") if attributes.get("id") == "evil"] == [] and not dom.tags("img")
    assert len(dom.tags("script")) == 2
    rows = [attributes for attributes in dom.tags("tr") if "data-index" in attributes]
    assert len(rows) == len(data_of(page.read_text()))
    assert [attributes["data-index"] for attributes in rows if attributes.get("class") == "on"] == ["7"]
    tokens = [attributes["class"] for attributes in dom.tags("span") if attributes.get("class", "").startswith("token")]
    assert len(tokens) == len(data_of(page.read_text())[7]["text"])
    assert "token template untrained" in tokens and "token policy" in tokens
    assert len([attributes for attributes in dom.tags("figure") if attributes.get("class") == "chart"]) >= 10
    assert re.search(r"<output>[\d.]+</output>", rendered)


def browse(address: str, profile) -> str:
    """The document after its scripts have run."""
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"
    command = [
        CHROMIUM,
        *(f"--{flag}" for flag in flags.split()),
        f"--user-data-dir={profile}",
        "--virtual-time-budget=3000",
        "--dump-dom",
        address,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
