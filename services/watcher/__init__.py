"""Watches topics of other people's pipelines, and changes nothing there."""
