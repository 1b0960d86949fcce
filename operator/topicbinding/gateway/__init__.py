"""The gateway: every binding, live, for people and programs: the page, REST, SSE and WebSocket.

One direction: kube -> directory -> upstream -> mirror -> channel -> viewer -> routes. Nothing here is the
truth about anything: all of it is rebuilt from the API server and the drivers, so replicas work side by side.
"""
