"""What the tests of several layers share: the cluster, a broker, waiting."""
