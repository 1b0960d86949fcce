"""`python3 deploy/local <command>`: the local cluster, from nothing to Kafka and back.

Runs with the standard library alone, because on a bare machine nothing else is there yet.
"""

import sys

from localcluster.commands import main

sys.exit(main(sys.argv[1:]))
