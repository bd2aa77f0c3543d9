"""Give the conductor on a cluster the webhooks of the settings.

    python -m deploy.kubernetes FOLDER [--on five-brokers] [--to CIDR …]

Writes a kustomization into FOLDER, beside `base` or with its path given by --on. The files named in
the settings become keys of the secret `tidegauge-webhooks`. --to: address ranges of receivers with
a host name, if these are not public.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from deploy.kubernetes.notices import kustomization, network_policy
from services.runtime.settings import load_settings
from services.runtime.webhooks import WebhookSettings

HERE = Path(__file__).parent
POLICY = "notices.yaml"


def main(arguments: list[str]) -> int:
    """Write both files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", default="base")
    parser.add_argument("--to", action="append", default=[], metavar="CIDR")
    options = parser.parse_args(arguments)
    settings = load_settings(WebhookSettings)
    if not settings.webhooks:
        print("kubernetes: the settings have no webhooks", file=sys.stderr)
        return 2
    folder: Path = options.folder
    base = os.path.relpath(HERE / options.on, folder)
    try:
        files = {
            "kustomization.yaml": kustomization(
                settings.webhooks, settings.no_results_minutes, base, POLICY
            ),
            POLICY: network_policy(settings.webhooks, options.to),
        }
    except ValueError as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, result in files.items():  # JSON is valid YAML
        (folder / name).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
