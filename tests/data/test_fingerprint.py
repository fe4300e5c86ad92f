"""Fingerprints follow content, not place."""

from hashlib import sha256

from ssrl.data import fingerprint as module
from ssrl.data.fingerprint import fingerprint


def test_a_file_counts_by_its_content_wherever_it_lies(tmp_path):
    for name, text in (("a.jsonl", "one"), ("b.jsonl", "one"), ("c.jsonl", "two")):
        (tmp_path / name).write_text(text)
    assert fingerprint(str(tmp_path / "a.jsonl")) == fingerprint(str(tmp_path / "b.jsonl")) == f"sha256:{sha256(b'one').hexdigest()}"
    assert fingerprint(str(tmp_path / "c.jsonl")) != fingerprint(str(tmp_path / "a.jsonl"))


def test_a_folder_counts_by_names_and_contents_and_not_by_hidden_files(tmp_path):
    for name in ("m1", "m2"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "sub" / "w.bin").write_bytes(b"123")
    first, second = str(tmp_path / "m1"), str(tmp_path / "m2")
    assert fingerprint(first) == fingerprint(second)
    (tmp_path / "m2" / ".cache").write_text("x")
    assert fingerprint(first) == fingerprint(second)
    (tmp_path / "m2" / "sub" / "w.bin").rename(tmp_path / "m2" / "sub" / "v.bin")
    assert fingerprint(first) != fingerprint(second)


def test_a_large_file_is_sampled_at_head_middle_and_tail(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WHOLE", 1000)
    monkeypatch.setattr(module, "SAMPLE", 100)
    base = bytearray(5000)
    seen = set()
    for changed in (None, 10, 2500, 4990, 1000):
        content = bytearray(base)
        if changed is not None:
            content[changed] = 1
        (tmp_path / "big.bin").write_bytes(content)
        seen.add(fingerprint(str(tmp_path / "big.bin")))
    (tmp_path / "big.bin").write_bytes(bytes(5001))
    assert len(seen) == 4, "changes at 10, 2500 and 4990 are seen, the one at 1000 lies between the samples"
    assert fingerprint(str(tmp_path / "big.bin")) not in seen, "the size counts"


def test_bundled_names_count_by_content_and_hub_ids_by_name():
    assert fingerprint("bundled:test").startswith("sha256:") and fingerprint("bundled:test") != fingerprint("bundled:train")
    assert fingerprint("hf:RUC-NLPIR/FlashRAG_datasets") == "hf:RUC-NLPIR/FlashRAG_datasets"
    assert fingerprint("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
