"""An external pipeline: starts the command given in its pipeline file."""
