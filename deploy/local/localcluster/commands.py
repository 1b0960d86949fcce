"""The commands of `python3 deploy/local`, each a short list of steps. The Makefile calls them; so may you."""

import argparse
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster import (
    binaries,
    cluster,
    demo,
    diagnosis,
    engine,
    facts,
    firewall,
    images,
    install,
    kafka,
    nodeimage,
    plan,
    registry,
    tour,
    versions,
)
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
        sweep(settings.cache)
        yield


def up(settings: Settings, options: argparse.Namespace) -> None:
    """whatever is missing between this machine and a cluster with Kafka and our images"""
    start = time.monotonic()
    with alone(settings):
        raise_all(settings)
    say(f"[up] ready in {time.monotonic() - start:.1f} s; kubeconfig {settings.kubeconfig}")


def two_nodes(settings: Settings, options: argparse.Namespace) -> None:
    """a second cluster of two nodes beside the first (or instead of it); `down` removes both"""
    with alone(settings):
        ground(settings.with_two_nodes())
    say(f"[two-nodes] ready; kubeconfig {settings.with_two_nodes().kubeconfig}")


def remove_two_nodes(settings: Settings, options: argparse.Namespace) -> None:
    """remove the cluster of two nodes and nothing else"""
    with alone(settings):
        cluster.delete(settings.with_two_nodes())


def raise_all(settings: Settings) -> dict[str, str]:
    """Ground, images, Kafka, operator; the references of the images."""
    ground(settings)
    references = images.provide(settings, list(images.IMAGES))
    kafka.apply(settings, references["kafka"])
    install.deploy(settings, references)
    kafka.wait(settings)
    kafka.create_topics(settings, references["control"])
    return references


def make_demo(settings: Settings, options: argparse.Namespace) -> None:
    """up, sample data, a binding that serves, the page's address, and a tour with a swap to watch"""
    with alone(settings):
        references = raise_all(settings)
        demo.deploy_data(settings, references["control"])
        demo.bind(settings)
    if not options.no_tour:
        tour.run(settings)


def install_operator(settings: Settings, options: argparse.Namespace) -> None:
    """build what changed and install the operator with it"""
    with alone(settings):
        install.deploy(settings, images.provide(settings, ["control", "spark"]))


def tools(settings: Settings, options: argparse.Namespace) -> None:
    """kind, kubectl and helm alone, made where the PATH has none that will do; no cluster"""
    with alone(settings):
        found = facts.look(settings)
        missing = [name for name in ("kind", "kubectl", "helm") if getattr(found, name) is None]
        if missing:
            plan.require_go(found, ", ".join(missing))
        for name in missing:
            {"kind": binaries.make_kind, "kubectl": binaries.make_kubectl, "helm": binaries.make_helm}[name](
                settings
            )


def build_images(settings: Settings, options: argparse.Namespace) -> None:
    """build and push what changed (all images, or those named); print their references"""
    start = time.monotonic()
    with alone(settings):
        images.show(images.provide(settings, options.names or list(images.IMAGES), options.index), start)


def deploy_kafka(settings: Settings, options: argparse.Namespace) -> None:
    """the development Kafka and its sample topics (KAFKA_REPLICAS=3 for three brokers)"""
    with alone(settings):
        references = images.provide(settings, ["kafka", "control"])
        where = settings.with_two_nodes() if options.two_nodes else settings
        kafka.apply(where, references["kafka"])
        kafka.wait(where)
        kafka.create_topics(where, references["control"])


def demo_data(settings: Settings, options: argparse.Namespace) -> None:
    """a producer in namespace demo that keeps users and accounts changing"""
    with alone(settings):
        demo.deploy_data(settings, images.provide(settings, ["control"])["control"])


def down(settings: Settings, options: argparse.Namespace) -> None:
    """take away everything `up` started; what was made stays in the cache"""
    with alone(settings):
        engine.wake_for_removal(settings)
        if facts.engine_answers():
            cluster.delete(settings)
            cluster.delete(settings.with_two_nodes())
            registry.stop(settings)
            cluster.remove_network()
        if facts.our_dockerd(settings) is not None:
            firewall.let_cluster_addresses_out()
        engine.stop(settings)
    say("[down] nothing of the cluster is left; what was made is kept (`clean-cache` removes it)")


def clean_cache(settings: Settings, options: argparse.Namespace) -> None:
    """remove everything that was made and kept; run `down` first"""
    with alone(settings):
        if facts.our_dockerd(settings) is not None or (facts.engine_answers() and cluster.nodes(settings)):
            raise Trouble("the cluster is still up", "run `make down` first")
        if facts.engine_answers():
            images.remove_all(settings)
        engine.unmount_data(settings)
        diagnosis.empty_cache(settings)
    say(f"[clean-cache] {settings.cache} is empty")


def status(settings: Settings, options: argparse.Namespace) -> None:
    """what is there, in a few lines; the exit code is 0 when the cluster is usable"""
    diagnosis.status(settings)


def collect(settings: Settings, options: argparse.Namespace) -> None:
    """gather events, descriptions and logs of all namespaces into one folder"""
    diagnosis.collect(settings, options.folder)


def ground(settings: Settings) -> None:
    """Engine, tools, images to start from, cluster, registry: said first, then done."""
    found = facts.look(settings)
    plan.check_room(found)
    install, start = plan.before_engine(found)
    if install:
        say("[plan] engine: none is here; docker.io is installed")
        engine.install_packages(settings, engine.ENGINE_PACKAGES)
    if start:
        say("[plan] engine: it does not run; it is started")
        if found.missing_sys_resource and not found.systemd:
            plan.require_go(found, "a front for runc (this machine lacks CAP_SYS_RESOURCE)")
        engine.start(settings, systemd=found.systemd, missing_sys_resource=found.missing_sys_resource)
        found = facts.look(settings)
        plan.check_room(found)
    pulls = facts.registry_reachable(versions.BASE_IMAGE) if plan.needs_pull(found) else None
    wanted = plan.decide(found, registry=pulls)
    for line in wanted.lines:
        say(f"[plan] {line}")
    if wanted.packages:
        engine.install_packages(settings, engine.MAKING_PACKAGES)
    make_what_it_starts_from(settings, wanted)
    stand(settings, wanted, found, restarted=start)
    put_beside(settings, wanted)


def make_what_it_starts_from(settings: Settings, wanted: plan.Plan) -> None:
    """kind, kubectl, the node and base images, as far as they are neither here nor pulled by kind."""
    if "kind" in wanted.tools:
        binaries.make_kind(settings)
    if wanted.node in (plan.Source.MAKE, plan.Source.LOAD):
        nodeimage.make_node_image(settings)
    if "kubectl" in wanted.tools:
        binaries.make_kubectl(settings)
    if wanted.base is plan.Source.MAKE:
        nodeimage.make_base_image(settings)


def put_beside(settings: Settings, wanted: plan.Plan) -> None:
    """The image registry and helm: not needed for the cluster to stand, but for everything after it."""
    if wanted.registry is plan.Source.MAKE:
        registry.make_image(settings)
    elif wanted.registry is plan.Source.PULL:
        run(["docker", "pull", versions.PULLED_REGISTRY_IMAGE])
    registry.start(settings)
    cluster.trust_registry(settings)
    if "helm" in wanted.tools:
        binaries.make_helm(settings)


def stand(settings: Settings, wanted: plan.Plan, found: facts.Facts, *, restarted: bool) -> None:
    """The cluster, found whole, brought back, or created.

    After a restart of the engine its word that all is well is old news: it is always brought back.
    """
    if facts.our_dockerd(settings) is not None:
        firewall.keep_cluster_addresses_in()
    if found.cluster_exists:
        whole = not restarted and all(cluster.nodes(settings).values()) and cluster.ready(settings)
        if not whole and not cluster.recover(settings):
            again = cluster.node_image(settings)
            cluster.delete(settings)
            cluster.create(settings, image=again)
    else:
        pulls = wanted.node is plan.Source.PULL
        cluster.create(settings, image=None if pulls else versions.MADE_NODE_IMAGE)


COMMANDS: dict[str, Callable[[Settings, argparse.Namespace], None]] = {
    "up": up,
    "down": down,
    "demo": make_demo,
    "two-nodes": two_nodes,
    "two-nodes-down": remove_two_nodes,
    "tools": tools,
    "install": install_operator,
    "images": build_images,
    "kafka": deploy_kafka,
    "demo-data": demo_data,
    "status": status,
    "collect": collect,
    "clean-cache": clean_cache,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="deploy/local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in COMMANDS.items():
        command = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        if name == "images":
            command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(images.IMAGES))
            command.add_argument("--index", type=Path, help="where to write the references, for scripts")
        if name == "kafka":
            command.add_argument("--two-nodes", action="store_true", help="into the cluster of two nodes")
        if name == "demo":
            command.add_argument("--no-tour", action="store_true", help="stop when the page is there")
        if name == "collect":
            command.add_argument("folder", nargs="?", default="artifacts/cluster")
    options = parser.parse_args(arguments)
    unknown = [name for name in getattr(options, "names", []) if name not in images.IMAGES]
    if unknown:
        parser.error(f"no image {unknown[0]!r}; there are {', '.join(images.IMAGES)}")
    return options


def main(arguments: list[str]) -> int:
    """Parse, run, and turn trouble into a message and an exit code."""
    options = parse(arguments)
    try:
        COMMANDS[options.command](Settings.from_env(), options)
    except Trouble as trouble:
        complain(trouble)
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on from here")
        return 130
    return 0
