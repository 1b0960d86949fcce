"""The control message: what people may send. Shared by the bridge, which obeys it, and the command line."""
