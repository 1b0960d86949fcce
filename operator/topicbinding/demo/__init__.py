"""Sample data for the local cluster: topics, and people whose accounts keep changing.

Not part of an installation.
"""
