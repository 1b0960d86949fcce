"""An image's tag: it changes with what goes into the image and with nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localcluster import images, making, versions
from localcluster.images import IMAGES, Image, inputs_digest
from localcluster.settings import REPOSITORY, Settings

IMAGE = Image("Dockerfile", "control", ("Dockerfile", "code"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("print(1)\n")
    return tmp_path


def test_the_same_inputs_give_the_same_tag(tree: Path) -> None:
    before = inputs_digest(tree, IMAGE)
    (tree / "code" / "main.py").touch()
    (tree / "code" / "__pycache__").mkdir()
    (tree / "code" / "__pycache__" / "main.pyc").write_text("x")
    (tree / "unrelated").write_text("x")

    assert inputs_digest(tree, IMAGE) == before


def test_any_change_of_the_inputs_gives_another_tag(tree: Path) -> None:
    seen = {inputs_digest(tree, IMAGE)}
    (tree / "code" / "main.py").write_text("print(2)\n")
    seen.add(inputs_digest(tree, IMAGE))
    (tree / "code" / "main.py").rename(tree / "code" / "other.py")
    seen.add(inputs_digest(tree, IMAGE))
    (tree / "code" / "other.py").chmod(0o755)
    seen.add(inputs_digest(tree, IMAGE))
    (tree / "Dockerfile").write_text("FROM scratch AS control\n")
    seen.add(inputs_digest(tree, IMAGE))
    seen.add(inputs_digest(tree, Image("Dockerfile", "spark", IMAGE.inputs)))

    assert len(seen) == 6


def test_every_input_named_is_there() -> None:
    for image in IMAGES.values():
        for name in (image.dockerfile, *image.inputs):
            assert (REPOSITORY / name).exists(), name


def test_references_are_named_by_the_registry(tmp_path: Path) -> None:
    for name, reference in images.current(Settings(cache=tmp_path)).items():
        assert reference.startswith(f"localhost:5001/topicbinding/{name}:")


def test_an_interrupted_making_leaves_nothing_under_the_good_name(tmp_path: Path) -> None:
    target = tmp_path / "made" / "thing"

    def broken() -> None:
        with making.aside(target) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert not target.exists()

    with making.aside(target) as partial:
        partial.write_text("whole")
    assert target.read_text() == "whole"


def test_what_a_killed_run_left_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead, alive = tmp_path / f".partial-{gone.pid}-a", tmp_path / ".partial-1-b"
    dead.mkdir()
    alive.mkdir()

    making.sweep(tmp_path)

    assert not dead.exists()
    assert alive.exists()


def test_versions_decide_the_keys_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions.node_key()
    assert before == versions.node_key()

    monkeypatch.setattr(versions, "KIND", "v0.0.1")

    assert versions.node_key() != before
