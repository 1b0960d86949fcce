module topicbinding.dev/local/local-path

go 1.24.0

require github.com/rancher/local-path-provisioner v0.0.30
