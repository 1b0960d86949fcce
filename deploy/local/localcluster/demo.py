"""The demo: sample data that keeps changing, a binding over it, and where to look."""

from string import Template

from localcluster.cluster import kubectl
from localcluster.report import say, step
from localcluster.settings import REPOSITORY, Settings

MANIFESTS = REPOSITORY / "deploy" / "demo"


def deploy_data(settings: Settings, image: str) -> None:
    """The producer, applied and waited for."""
    text = (MANIFESTS / "producer.yaml").read_text()
    with step("demo", "sample data: users and accounts keep changing on v1 and v2"):
        filled = Template(text).substitute(IMAGE=image, REPLICAS=settings.kafka_replicas)
        kubectl(settings, "apply", "-f", "-", stdin=filled)
        words = ("rollout", "status", "deployment/sample-data", "-n", "demo", "--timeout=120s")
        kubectl(settings, *words, timeout=140)


def bind(settings: Settings) -> None:
    """The binding, applied and waited for until it serves."""
    with step("demo", "the binding customers: wait until it serves"):
        kubectl(settings, "apply", "-f", MANIFESTS / "binding.yaml")
        words = ("wait", "--for=condition=Ready", "topicbinding/customers", "-n", "demo", "--timeout=300s")
        kubectl(settings, *words, timeout=320)
    say(f"[demo] the page: http://127.0.0.1:{settings.page_port}")
