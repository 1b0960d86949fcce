"""TopicBinding: a live Spark join of two Kafka topics under stable names, hot-swapped by generations."""

__version__ = "0.1.0"
