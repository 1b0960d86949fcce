module topicbinding.dev/local/runc-caps

go 1.24.0
