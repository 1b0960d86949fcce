"""The table log: the three tables in the driver's memory, columnar, readable at any moment without a lock.

One writer (the query) appends; readers take what was published last. See `tablelog` for the promises.
"""

from topicbinding_job.log.tablelog import BadRow, Changes, LogTable, TableLog, TableTooLarge

__all__ = ["BadRow", "Changes", "LogTable", "TableLog", "TableTooLarge"]
