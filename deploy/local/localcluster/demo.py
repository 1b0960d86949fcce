"""The demo's sample data: one Deployment of the control image."""

from string import Template

from localcluster.cluster import kubectl
from localcluster.report import step
from localcluster.settings import REPOSITORY, Settings

MANIFEST = REPOSITORY / "deploy" / "demo" / "producer.yaml"


def deploy(settings: Settings, image: str) -> None:
    """Apply it and wait until it runs."""
    text = Template(MANIFEST.read_text()).substitute(IMAGE=image, REPLICAS=settings.kafka_replicas)
    with step("demo", "sample data: users and accounts keep changing on v1 and v2"):
        kubectl(settings, "apply", "-f", "-", stdin=text)
        words = ("rollout", "status", "deployment/sample-data", "-n", "demo", "--timeout=120s")
        kubectl(settings, *words, timeout=140)
