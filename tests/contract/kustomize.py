"""The parts of Kustomize that deploy/kubernetes uses: resources, and JSON patches with a target."""

import copy
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]


def build(folder: Path) -> list[Resource]:
    """The resources of a folder with a kustomization.yaml, patched."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "patches"}
    assert set(kustomization) <= known, set(kustomization) - known
    found: list[Resource] = []
    for name in kustomization["resources"]:
        path = folder / name
        found += build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for patch in kustomization.get("patches", []):
        targets = [each for each in found if is_target(each, patch["target"])]
        assert len(targets) == 1, patch["target"]
        apply(targets[0], yaml.safe_load(patch["patch"]))
    for each in found:
        if "namespace" in kustomization and each["kind"] != "Namespace":
            each["metadata"]["namespace"] = kustomization["namespace"]
    return copy.deepcopy(found)


def is_target(resource: Resource, target: dict[str, str]) -> bool:
    name = (resource["kind"], resource["metadata"]["name"])
    return name == (target["kind"], target["name"])


def apply(resource: Resource, operations: list[dict[str, Any]]) -> None:
    """RFC 6902, `add`, `replace` and `remove` of members; to replace or remove a missing one is an
    error."""
    for operation in operations:
        *parents, last = operation["path"].removeprefix("/").split("/")
        place: Any = resource
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        end = len(place) if last == "-" else last
        key = int(end) if isinstance(place, list) else last
        if operation["op"] == "remove":
            del place[key]  # raises KeyError or IndexError
        elif operation["op"] == "replace":
            place[key]
            place[key] = operation["value"]
        elif isinstance(place, list):
            assert operation["op"] == "add", operation
            assert key <= len(place), operation
            place.insert(key, operation["value"])
        else:
            assert operation["op"] == "add", operation
            place[key] = operation["value"]
