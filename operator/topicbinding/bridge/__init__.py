"""The bridge: reads one binding's control topic and updates that one binding.

`message`, `fold`, `position` and `outcome` are pure rules. `kube` is the Kubernetes port, `service` the loop
that joins rules and ports, `journal`, `answers` and `report` carry the verdicts to people, `server` is HTTP.
"""
