"""The command line against the real cluster, a real broker and a running bridge."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from tests.integration.bridge.conftest import Stage
from tests.support.cluster import ROOT
from tests.support.waiting import eventually

MakeStage = Callable[..., Stage]


def plugin(on: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(on, *arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=_environment(on),
    )


def _command(on: Stage, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "topicbinding", "cli", *arguments, "-n", on.namespace]


def _environment(on: Stage) -> dict[str, str]:
    return {**os.environ, **on.cluster.environment, "PYTHONPATH": str(ROOT / "operator")}


def test_sending_waiting_and_looking(stage: MakeStage) -> None:
    on = stage()
    on.running()
    watching = subprocess.Popen(
        _command(on, "watch", on.name), stdout=subprocess.PIPE, text=True, env=_environment(on)
    )
    try:
        sent = plugin(on, "send", on.name, "--users", "u2", "--join", "INNER", "--id", "r1")
        assert (sent.returncode, sent.stderr) == (0, ""), sent
        assert "applied: usersTopic u1 -> u2, joinType left -> inner" in sent.stdout
        assert on.three() == ("u2", "a1", "inner")
        heartbeat = plugin(on, "send", on.name, "--users", "u2")
        assert "unchanged: no change" in heartbeat.stdout
        wrong = plugin(on, "send", on.name, "--raw", '{"userTopic": "u3"}')
        assert (wrong.returncode, "did you mean" in wrong.stderr) == (1, True)
        forced = plugin(on, "send", on.name, "--raw", '{"userTopic": "u3"}', "--force")
        assert forced.returncode == 1
        assert "rejected: unknown key 'userTopic'" in forced.stdout
        lines = watching.stdout
        assert lines is not None
        eventually(lambda: "last message applied" in lines.readline(), 20, "the watch to show it", 0)
    finally:
        watching.terminate()
        watching.communicate()

    looked = plugin(on, "status", on.name)
    assert looked.returncode in (1, 2), "paused before anything was built: on its way, or not served"
    assert "rejected: unknown key 'userTopic'" in looked.stdout
    assert plugin(on, "tree", on.name).stdout.startswith(f"{on.name}  ")


def test_pause_resume_and_rollback(stage: MakeStage) -> None:
    on = stage()
    assert plugin(on, "resume", on.name).returncode == 0
    assert "topicbinding.dev/paused" not in on.raw()["metadata"].get("annotations", {})
    assert plugin(on, "pause", on.name).returncode == 0
    assert on.raw()["metadata"]["annotations"]["topicbinding.dev/paused"] == "true"
    nothing = plugin(on, "rollback", on.name)
    assert (nothing.returncode, "nothing to go back to" in nothing.stderr) == (1, True)
    choice = {"usersTopic": "u0", "accountsTopic": "a0", "kafka": {"bootstrapServers": "k:1"}}
    on.set_status({"previous": {"generation": 1, "choice": choice}})
    back = plugin(on, "rollback", on.name)
    assert back.returncode == 0
    assert "generation 1 served: users u0" in back.stdout
    assert "topicbinding.dev/rollback" in on.raw()["metadata"]["annotations"]


def test_clear_answers_when_something_is_missing(stage: MakeStage) -> None:
    on = stage()
    absent = plugin(on, "status", "no-such-binding")
    assert absent.returncode == 3
    assert "not found" in absent.stderr
    nobody = plugin(on, "send", on.name, "--users", "u2", "--bootstrap-servers", "127.0.0.1:1")
    assert nobody.returncode == 3
    assert "no broker answers at 127.0.0.1:1" in nobody.stderr
    alone = plugin(on, "send", on.name, "--users", "u2", "--wait", "1")
    assert (alone.returncode, "no verdict within 1 s" in alone.stderr) == (3, True)
