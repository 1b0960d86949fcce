"""Findings before anybody applies or sends; and the command line's own errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topicbinding.cli.lint import lint
from topicbinding.cli.main import main

GOOD = """
apiVersion: topicbinding.dev/v1alpha1
kind: TopicBinding
metadata: {name: demo}
spec:
  usersTopic: u1
  accountsTopic: a1
  kafka: {bootstrapServers: "k:9092"}
  control: {topic: c}
"""


def test_a_clean_binding_and_a_clean_message() -> None:
    assert lint(GOOD) == []
    assert lint('{"usersTopic": "u2"}') == []
    assert lint("kind: ConfigMap\nmetadata: {name: x}") == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (("usersTopic: u1", "usersTopic: 'a b'"), "spec.usersTopic: String should match pattern"),
        (("  accountsTopic: a1\n", ""), "spec.accountsTopic: Field required"),
        (("usersTopic: u1", "usersTopic: u1\n  userTopic: x"), "spec.userTopic: no such field"),
        (('"k:9092"}', '"k:9092", security: {protocl: SSL}}'), "spec.kafka.security.protocl: no such field"),
        (('"k:9092"}', '"k:9092", properties: {group.id: x}}'), "'group.id' is refused"),
        (('"k:9092"}', '"k:9092", security: {protocol: SASL_SSL}}'), "needs 'mechanism' and 'secretRef'"),
        (("topic: c", "topic: u1"), "is also a data topic"),
        (("name: demo", "name: " + "x" * 41), "41 characters, at most 40"),
        (("dev/v1alpha1", "dev/v1"), "apiVersion: 'topicbinding.dev/v1'"),
    ],
)
def test_findings(change: tuple[str, str], finding: str) -> None:
    found = lint(GOOD.replace(*change))
    assert any(finding in each for each in found), found


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('{"userTopic": "u"}', "did you mean 'usersTopic'"),
        ("{nonsense: [", "not JSON"),
        (json.dumps(json.dumps({"usersTopic": "u"})), "inside a JSON string"),
        ("", "is empty"),
    ],
)
def test_findings_in_messages(text: str, finding: str) -> None:
    assert [each for each in lint(text) if finding in each]


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.json"
    good.write_text(GOOD)
    bad.write_text('{"userTopic": "u"}')
    assert main(["lint", str(good)]) == 0
    assert main(["lint", str(good), str(bad)]) == 1
    assert "bad.json: control message: unknown key 'userTopic'" in capsys.readouterr().out
    assert main(["lint", str(tmp_path / "absent")]) == 3


def test_a_message_that_would_be_rejected_is_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", "demo", "--join", "sideways"]) == 1
    assert "not sent: 'joinType': 'sideways' is no join type" in capsys.readouterr().err


def test_no_cluster_is_an_answer_not_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("not: a kubeconfig")
    assert main(["status", "demo", f"--kubeconfig={nowhere}"]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in ("tree", "watch", "status", "rollback", "pause", "resume", "open", "lint", "send"):
        assert command in shown
