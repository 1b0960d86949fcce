"""The controller: kopf handlers -> reconciler -> pure planner -> Kubernetes port. No Kafka, no Secrets."""
