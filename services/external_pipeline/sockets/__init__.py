"""A system behind sockets: starts the command of its pipeline file and receives its results."""
