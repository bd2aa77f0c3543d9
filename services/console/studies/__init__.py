"""The verb `study`: what is to be run, what was run, and the page about it."""
