"""The bridge: reads one binding's control topic and updates that one binding.

`fold`, `position`, `outcome` and `patch` are pure rules, on top of `topicbinding.control`. `kube` is the
Kubernetes port, `service` and `session` the loop that joins rules and ports; `journal`, `answers` and
`report` carry the verdicts to people; `server` is HTTP.
"""
