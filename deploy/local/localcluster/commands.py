"""The commands: `up`, `down`, `images`, `kafka`, `demo-data`, `status`, `collect`, `clean-cache`. Each is a short list of steps."""

import argparse
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster import binaries, cluster, engine, facts, nodeimage, plan, registry, versions
from localcluster.making import sweep
from localcluster.report import Trouble, complain, say
from localcluster.settings import Settings
from localcluster.shell import run


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """One run at a time: a second waits for the first and then finds the work done."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("[lock] another run is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(settings.made)
        yield


def up(settings: Settings, options: argparse.Namespace) -> None:
    """Whatever is missing between this machine and a cluster with Kafka and our images."""
    start = time.monotonic()
    with alone(settings):
        ground(settings)
    say(f"[up] ready in {time.monotonic() - start:.1f} s")


def ground(settings: Settings) -> None:
    """Engine, tools, images to start from, cluster, registry."""
    found = facts.look(settings)
    plan.check_room(found)
    install, start = plan.before_engine(found)
    if install:
        say("[plan] engine: none is here; docker.io is installed")
        engine.install_packages(settings, engine.ENGINE_PACKAGES)
    if start:
        say("[plan] engine: it does not run; it is started")
        engine.start(settings, systemd=found.systemd, missing_sys_resource=found.missing_sys_resource)
        found = facts.look(settings)
        plan.check_room(found)
    pulls = facts.registry_reachable(versions.BASE_IMAGE) if plan.needs_pull(found) else None
    wanted = plan.decide(found, registry=pulls)
    for line in wanted.lines:
        say(f"[plan] {line}")
    if wanted.install_making_packages:
        engine.install_packages(settings, engine.MAKING_PACKAGES)
    make_tools(settings, wanted)
    make_images(settings, wanted, found)
    stand(settings, wanted, found)


def make_tools(settings: Settings, wanted: plan.Plan) -> None:
    """kind, kubectl and helm where the PATH has none that will do."""
    if wanted.make_kind:
        binaries.make_kind(settings)
    if wanted.make_helm:
        binaries.make_helm(settings)


def make_images(settings: Settings, wanted: plan.Plan, found: facts.Facts) -> None:
    """Node, base and registry images where they cannot be pulled; and kubectl, which comes with the node's programs."""
    if wanted.make_images and not found.cluster_exists and not found.node_image:
        nodeimage.make_node_image(settings)
    if wanted.make_kubectl:
        binaries.make_kubectl(settings)
    if wanted.make_images and not found.base_image:
        nodeimage.make_base_image(settings)
    if not found.registry_image:
        if wanted.make_images:
            registry.make_image(settings)
        else:
            run(["docker", "pull", versions.PULLED_REGISTRY_IMAGE])


def stand(settings: Settings, wanted: plan.Plan, found: facts.Facts) -> None:
    """The cluster, found whole, brought back, or created; and the registry beside it."""
    cluster.keep_addresses_in(facts.our_dockerd(settings) is not None)
    image = versions.MADE_NODE_IMAGE if wanted.make_images else None
    if found.cluster_exists:
        whole = all(cluster.nodes(settings).values()) and cluster.ready(settings)
        if not whole and not cluster.recover(settings):
            image = cluster.node_image(settings)
            cluster.delete(settings)
            cluster.create(settings, image=image)
    else:
        cluster.create(settings, image=image)
    registry.start(settings)
    cluster.trust_registry(settings)


def down(settings: Settings, options: argparse.Namespace) -> None:
    """Take away everything `up` started; what it made stays in the cache."""
    with alone(settings):
        if facts.engine_answers():
            cluster.delete(settings)
            registry.stop(settings)
            cluster.remove_network()
        if os.geteuid() == 0 and shutil.which("iptables"):
            from localcluster import firewall

            firewall.let_cluster_addresses_out()
        engine.stop(settings)
        settings.kubeconfig.unlink(missing_ok=True)
    say(
        "[down] nothing of the cluster is left; what was made is kept for the next time (`clean-cache` removes it)"
    )


COMMANDS = {"up": up, "down": down}


def main(arguments: list[str]) -> int:
    """Parse, run, and turn trouble into a message and an exit code."""
    parser = argparse.ArgumentParser(prog="deploy/local", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    options = parser.parse_args(arguments)
    try:
        COMMANDS[options.command](Settings.from_env(), options)
    except Trouble as trouble:
        complain(trouble)
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on from here")
        return 130
    return 0
