"""A pipeline that is no part of Tidegauge: starts the command that its file names."""
