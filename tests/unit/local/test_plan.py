"""What `up` would do, machine by machine, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localcluster import plan
from localcluster.facts import Facts
from localcluster.plan import Source
from localcluster.report import Trouble

# A machine with nothing but Debian, root and Go: the hardest one.
BARE = Facts(
    root=True,
    debian_like=True,
    systemd=False,
    cgroup_v1=True,
    missing_sys_resource=True,
    engine_running=False,
    engine_ours=False,
    engine_installed=False,
    docker_cli=None,
    go=(1, 26),
    mmdebstrap=False,
    zstd=False,
    compiler=False,
    kind=None,
    kubectl=None,
    helm=None,
    base_image=False,
    node_image=False,
    registry_image=False,
    node_archive=False,
    cluster_exists=False,
    free_disk_gb=80.0,
    memory_gb=24.0,
    taken_ports=(),
)
# A developer's machine: Docker runs, tools are installed, images can be pulled, nobody is root.
LAPTOP = replace(
    BARE,
    root=False,
    systemd=True,
    cgroup_v1=False,
    engine_running=True,
    engine_installed=True,
    docker_cli="/usr/bin/docker",
    go=None,
    kind="/usr/bin/kind",
    kubectl="/usr/bin/kubectl",
    helm="/usr/bin/helm",
)
# The bare machine, the second time.
WARM = replace(
    BARE,
    engine_running=True,
    engine_installed=True,
    engine_ours=True,
    docker_cli="/usr/bin/docker",
    mmdebstrap=True,
    zstd=True,
    compiler=True,
    kind="kind",
    kubectl="kubectl",
    helm="helm",
    base_image=True,
    node_image=True,
    registry_image=True,
    node_archive=True,
)


def test_a_bare_machine_gets_an_engine_and_makes_everything() -> None:
    assert plan.before_engine(BARE) == (True, True)
    running = replace(BARE, engine_running=True, docker_cli="/usr/bin/docker")
    assert plan.needs_pull(running)

    decided = plan.decide(running, registry=False)

    assert (decided.node, decided.base, decided.registry) == (Source.MAKE, Source.MAKE, Source.MAKE)
    assert decided.tools == ("kind", "kubectl", "helm")
    assert decided.packages
    said = "\n".join(decided.lines)
    assert "no image registry answers" in said
    assert "10 to 15 minutes" in said


def test_a_laptop_uses_what_is_there_and_compiles_nothing() -> None:
    assert plan.before_engine(LAPTOP) == (False, False)

    decided = plan.decide(LAPTOP, registry=True)

    assert (decided.node, decided.base, decided.registry) == (Source.PULL, Source.HERE, Source.PULL)
    assert decided.tools == ()
    assert not decided.packages


def test_a_warm_machine_asks_no_registry_and_makes_nothing() -> None:
    assert not plan.needs_pull(WARM)

    decided = plan.decide(WARM, registry=None)

    assert {decided.node, decided.base, decided.registry} == {Source.HERE}
    assert decided.tools == ()
    assert not decided.packages


def test_a_saved_node_image_is_loaded_instead_of_compiled() -> None:
    decided = plan.decide(replace(WARM, node_image=False, zstd=False), registry=False)

    assert decided.node is Source.LOAD
    assert decided.packages, "zstd is needed to read the archive"


def test_cgroup_v1_needs_a_made_node_even_where_images_can_be_pulled() -> None:
    machine = replace(LAPTOP, cgroup_v1=True, root=True, go=(1, 24))

    decided = plan.decide(machine, registry=True)

    assert (decided.node, decided.base, decided.registry) == (Source.MAKE, Source.HERE, Source.PULL)
    assert "cgroup v1" in decided.lines[1]


def test_a_cluster_that_exists_is_never_made_again() -> None:
    decided = plan.decide(replace(WARM, cluster_exists=True, node_image=False), registry=None)

    assert decided.node is Source.HERE
    assert "brought back if it is down" in decided.lines[1]


def test_an_installed_engine_is_started_not_installed() -> None:
    assert plan.before_engine(replace(BARE, engine_installed=True)) == (False, True)


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        (replace(BARE, root=False), "apt-get install docker.io"),
        (replace(BARE, root=False, engine_installed=True), "usermod -aG docker"),
        (replace(BARE, debian_like=False), "package manager"),
    ],
)
def test_without_an_engine_and_without_the_right_to_make_one_it_says_what_to_do(
    machine: Facts, word: str
) -> None:
    with pytest.raises(Trouble) as trouble:
        plan.before_engine(machine)
    assert word in trouble.value.do


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        (replace(WARM, free_disk_gb=2.0), "XDG_CACHE_HOME"),
        (replace(BARE, free_disk_gb=10.0), "XDG_CACHE_HOME"),
        (replace(WARM, memory_gb=2.0), "larger machine"),
        (replace(WARM, taken_ports=(8080,)), "PAGE_PORT"),
    ],
)
def test_too_little_room_is_refused_before_anything_is_done(machine: Facts, word: str) -> None:
    with pytest.raises(Trouble) as trouble:
        plan.check_room(machine)
    assert word in trouble.value.do


def test_a_warm_machine_needs_less_disk() -> None:
    plan.check_room(replace(WARM, free_disk_gb=10.0))


@pytest.mark.parametrize("go", [None, (1, 19)])
def test_what_must_be_compiled_needs_a_new_enough_go(go: tuple[int, int] | None) -> None:
    with pytest.raises(Trouble, match=r"must be compiled|too old") as trouble:
        plan.decide(replace(BARE, engine_running=True, docker_cli="docker", go=go), registry=False)
    assert "Go 1.24" in trouble.value.do
    assert "the node image" in trouble.value.what


def test_an_engine_of_the_machine_is_told_from_ours() -> None:
    assert "as it is" in plan.decide(LAPTOP, registry=True).lines[0]
    assert "started for this" in plan.decide(WARM, registry=None).lines[0]


def test_a_docker_command_without_buildkit_is_refused_with_what_to_install() -> None:
    with pytest.raises(Trouble) as trouble:
        plan.decide(replace(LAPTOP, docker_cli=None), registry=True)
    assert "docker-buildx" in trouble.value.do


def test_making_images_needs_root_on_debian() -> None:
    with pytest.raises(Trouble, match="root on Debian"):
        plan.decide(replace(LAPTOP, go=(1, 26)), registry=False)
