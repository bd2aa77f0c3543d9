"""Kubernetes manifests derived from settings."""
