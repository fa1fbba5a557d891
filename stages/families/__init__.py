"""What is special to one family of pipelines, one file each, registered by name."""
