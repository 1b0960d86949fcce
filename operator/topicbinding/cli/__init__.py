"""`kubectl topicbinding`: the command line. It uses kubectl itself, so it is whoever kubectl is."""
