"""Kafka from our side: one settings model rendered for each client's dialect, and the port that talks to it.

`settings` is pure and used by bridge, driver and command line. `port` is the only importer of confluent_kafka
outside the Spark job.
"""
