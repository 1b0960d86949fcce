"""Tables as they travel: the row schema, the frames, the queries and the formats.

Shared by the driver, the gateway and the Python client, so that all three mean the same thing by a row, a
frame and a filter. Imports pyarrow and nothing else from outside.
"""
