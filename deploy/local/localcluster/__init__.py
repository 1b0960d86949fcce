"""From a bare machine to a kind cluster with a registry, Kafka and our images, and back again.

`commands` is the way in; `facts` looks, `plan` decides (pure), the other modules act, one outside
system each.
"""
