"""Where things are kept."""

from ssrl.places import cache_folder


def test_the_cache_folder_is_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SSRL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SSRL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "ssrl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "ssrl"
