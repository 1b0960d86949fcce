"""What a platform engineer does with kubectl, on the cluster with the installed chart and stand-in driver
pods."""

from __future__ import annotations

import time

from tests.e2e.controller.conftest import NAMESPACE, Bindings
from tests.support.waiting import eventually


def test_kubectl_apply_rolls_one_to_two_to_three(bindings: Bindings) -> None:
    bindings.apply("rolls")
    bindings.kubectl("wait", "--for=condition=Ready", "tb/rolls", "--timeout=120s")
    assert bindings.status("rolls")["activeGeneration"] == 1
    for number in (2, 3):
        bindings.apply("rolls", usersTopic=f"users-{number}")
        bindings.serves("rolls", number)
        flipped = time.monotonic()
        assert bindings.condition("rolls", "Ready")["status"] == "True"
        retiring = f"rolls-g{number - 1}"
        assert retiring in bindings.names("gen", "rolls")
        eventually(
            lambda gone=retiring: gone not in bindings.names("gen,pods,svc", "rolls"),  # type: ignore[misc]
            60,
            f"{retiring} to be gone",
        )
        # Seen from outside, with what kubectl itself takes: it is not gone before its linger is over.
        assert time.monotonic() - flipped > 5
    events = bindings.kubectl("events", "--for", "tb/rolls")
    assert "swapped 2 -> 3" in events
    table = bindings.kubectl("get", "tb", "rolls")
    assert "users-3" in table


def test_the_old_one_serves_through_the_stable_service_while_the_new_one_is_built(bindings: Bindings) -> None:
    bindings.apply("steady")
    bindings.serves("steady", 1)
    bindings.apply("steady", usersTopic="slow-4")
    eventually(lambda: "steady-g2" in bindings.names("gen", "steady"), 30, "generation 2")
    endpoints = bindings.get("endpoints", "tb-steady")
    addresses = endpoints["subsets"][0]["addresses"]
    assert [each["targetRef"]["name"] for each in addresses] == ["steady-g1"]
    bindings.serves("steady", 2)
    eventually(
        lambda: (
            [
                each["targetRef"]["name"]
                for part in bindings.get("endpoints", "tb-steady").get("subsets", [])
                for each in part.get("addresses", [])
            ]
            == ["steady-g2"]
        ),
        20,
        "the stable Service to reach generation 2",
    )


def test_a_broken_generation_leaves_the_old_one_serving(bindings: Bindings) -> None:
    bindings.apply("careful")
    bindings.serves("careful", 1)
    bindings.apply("careful", usersTopic="broken-topic")
    eventually(
        lambda: bindings.condition("careful", "Progressing").get("reason") == "TopicNotFound",
        60,
        "the driver's own reason",
    )
    bindings.kubectl("wait", "--for=condition=Stalled", "tb/careful", "--timeout=180s")
    assert "topic broken-topic does not exist" in bindings.condition("careful", "Stalled")["message"]
    assert bindings.status("careful")["activeGeneration"] == 1
    assert bindings.condition("careful", "Ready")["status"] == "True"
    bindings.apply("careful", usersTopic="users-9")
    bindings.serves("careful", 3)


def test_what_cannot_start_says_so_and_disturbs_nothing(bindings: Bindings) -> None:
    bindings.apply("unlucky")
    bindings.serves("unlucky", 1)
    spark = {"image": "localhost:5001/topicbinding/not-there:1", "cores": 1, "memory": "128Mi"}
    bindings.apply("unlucky", spark=spark)
    eventually(
        lambda: (
            bindings.condition("unlucky", "Progressing").get("reason") in ("ErrImagePull", "ImagePullBackOff")
        ),
        90,
        "the image's trouble in the condition",
    )
    assert "not-there" in bindings.condition("unlucky", "Progressing")["message"]
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "secretRef": {"name": "no-such-secret"}}
    kafka = {"bootstrapServers": "kafka.kafka.svc:9092", "security": security}
    bindings.apply("unlucky", kafka=kafka)
    eventually(
        lambda: "no-such-secret" in bindings.condition("unlucky", "Progressing").get("message", ""),
        90,
        "the missing Secret in the condition",
    )
    assert bindings.status("unlucky")["activeGeneration"] == 1
    bindings.apply("unlucky")
    eventually(
        lambda: bindings.condition("unlucky", "Progressing").get("reason") == "UpToDate", 60, "calm again"
    )


def test_a_driver_that_exits_without_a_word_is_told_of(bindings: Bindings) -> None:
    bindings.apply("silent", usersTopic="mute-1")
    eventually(
        lambda: bindings.condition("silent", "Ready").get("reason") == "DriverFailed", 90, "DriverFailed"
    )
    assert "exit code 3" in bindings.condition("silent", "Ready")["message"]


def test_a_lost_pod_comes_back_for_the_same_generation(bindings: Bindings) -> None:
    bindings.apply("lost")
    bindings.serves("lost", 1)
    before = bindings.get("pod", "lost-g1")["metadata"]["uid"]
    bindings.kubectl("delete", "pod", "lost-g1", "--wait=false")

    def again() -> bool:
        found = bindings.kubectl("get", "pod", "lost-g1", "-o", "jsonpath={.metadata.uid}", check=False)
        return bool(found) and found != before

    eventually(again, 90, "another pod")
    bindings.kubectl("wait", "--for=condition=Ready", "tb/lost", "--timeout=120s")
    assert bindings.names("gen", "lost") == ["lost-g1"]


def test_a_warm_standby_takes_over_without_a_new_pod(bindings: Bindings) -> None:
    bindings.apply("warm", standby=1)
    bindings.serves("warm", 1)
    eventually(
        lambda: (
            "warm-g2" in bindings.names("gen", "warm")
            and bindings.get("gen", "warm-g2").get("status", {}).get("phase") == "Standby"
        ),
        90,
        "a warm standby",
    )
    pod = bindings.get("pod", "warm-g2")["metadata"]["uid"]
    bindings.apply("warm", standby=1, usersTopic="users-2")
    bindings.serves("warm", 2, seconds=30)
    assert bindings.get("pod", "warm-g2")["metadata"]["uid"] == pod


def test_a_checkpoint_claim_goes_with_its_generation(bindings: Bindings) -> None:
    spark = {
        "image": bindings.image,
        "cores": 1,
        "memory": "128Mi",
        "checkpoint": {"type": "pvc", "size": "8Mi"},
    }
    bindings.apply("stateful", spark=spark, linger={"seconds": 0})
    bindings.serves("stateful", 1)
    assert bindings.names("pvc", "stateful") == ["stateful-g1-checkpoint"]
    bindings.apply("stateful", spark=spark, linger={"seconds": 0}, usersTopic="users-2")
    bindings.serves("stateful", 2)
    eventually(
        lambda: bindings.names("pvc", "stateful") == ["stateful-g2-checkpoint"],
        60,
        "the old claim to be gone",
    )


def test_delete_leaves_nothing_behind(bindings: Bindings) -> None:
    bindings.apply("leaves")
    bindings.serves("leaves", 1)
    bindings.apply("leaves", usersTopic="users-2")
    bindings.serves("leaves", 2)
    bindings.kubectl("delete", "tb", "leaves", "--timeout=60s")
    kinds = "gen,pods,svc,pvc,sa,role,rolebinding,netpol,deploy"
    eventually(lambda: not bindings.names(kinds, "leaves"), 90, "nothing to be left")


def test_the_installed_controller_reads_no_secret(bindings: Bindings) -> None:
    account = "system:serviceaccount:topicbinding-system:topicbinding-controller"
    for verb in ("get", "list", "watch"):
        answer = bindings.cluster.kubectl(
            "auth", "can-i", verb, "secrets", "-n", NAMESPACE, f"--as={account}", check=False
        )
        assert answer.stdout.strip() == "no"
