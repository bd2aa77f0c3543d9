"""Base images: the official ones where they can be pulled, else the same contents from Debian, PyPI
and Maven Central."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from services.runtime.settings import ROOT
from tests.contract.compose import PARTS, value_of
from tests.deploy.container_engine import (
    BUILD_TIMEOUT_S,
    CACHE,
    ContainerEngine,
    install_debian,
)

DEBIAN: Final = "bookworm"
DEBIAN_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates", "openjdk-17-jre-headless")
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
LOCAL: Final = "tidegauge-test"
KAFKA: Final = Path(__file__).with_name("kafka")


def base_images(engine: ContainerEngine) -> dict[str, str]:
    """Pull or build what the images of compose.yaml are made of: the variables that select them."""
    official = {
        "PYTHON_IMAGE": _argument("Dockerfile", "PYTHON_IMAGE"),
        "KAFKA_IMAGE": value_of(PARTS["kafka"]["image"]),
        "SPARK_IMAGE": _argument("Dockerfile.executor", "SPARK_IMAGE"),
    }
    builders = {"PYTHON_IMAGE": _python, "KAFKA_IMAGE": _kafka, "SPARK_IMAGE": _spark}
    return {
        name: image if _exists(engine, image) or _pulled(engine, image) else builders[name](engine)
        for name, image in official.items()
    }


def _argument(file: str, name: str) -> str:
    """The default of an argument of a Dockerfile."""
    lines = (ROOT / "deploy" / "images" / file).read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith(f"ARG {name}="))


def _exists(engine: ContainerEngine, image: str) -> bool:
    return engine.succeeds("image", "inspect", image)


def _pulled(engine: ContainerEngine, image: str) -> bool:
    return engine.succeeds("pull", "--quiet", image)


def _python(engine: ContainerEngine) -> str:
    """Debian with its Python and Java, and the certificate authorities of this machine."""
    image = f"{LOCAL}/python:{DEBIAN}"
    if _exists(engine, image):
        return image
    archive = CACHE / f"{DEBIAN}.tar"
    if not archive.is_file():
        CACHE.mkdir(exist_ok=True)
        install_debian("mmdebstrap")
        new = archive.with_suffix(".new.tar")
        own = Path("/usr/local/share/ca-certificates")
        hooks = [f"copy-in {own} {own.parent}"] if own.is_dir() else []
        hooks += [
            'chroot "$1" update-ca-certificates',
            'ln -s ../../bin/python3 "$1/usr/local/bin/python"',
            'ln -s ../../bin/python3 "$1/usr/local/bin/python3"',
        ]
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(DEBIAN_PACKAGES)}",
            *(f"--customize-hook={hook}" for hook in hooks),
            DEBIAN,
            str(new),
        ]
        subprocess.run(command, timeout=BUILD_TIMEOUT_S, check=True)
        new.rename(archive)
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PIP_CERT": CERTIFICATES,
    }
    changes = [f"--change=ENV {name}={value}" for name, value in variables.items()]
    engine.docker("import", *changes, str(archive), image)
    return image


def _kafka(engine: ContainerEngine) -> str:
    """The broker of this checkout, started by the same class as in the official image."""
    image = f"{LOCAL}/kafka:{DEBIAN}"
    _python(engine)
    context = CACHE / "kafka"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(KAFKA, context)
    shutil.copytree(ROOT / ".jars" / "broker", context / "libs")
    engine.docker("build", "--quiet", "--tag", image, str(context))
    return image


def _spark(engine: ContainerEngine) -> str:
    """Spark of the package pyspark, in the folder of the official image."""
    image = f"{LOCAL}/spark:{DEBIAN}"
    _python(engine)
    context = CACHE / "spark"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    package = next((ROOT / ".venv").glob("lib/python3.*/site-packages/pyspark"))
    for folder in ("bin", "jars", "python"):
        if (package / folder).is_dir():
            shutil.copytree(package / folder, context / folder)
    (context / "Dockerfile").write_text(
        f"FROM {LOCAL}/python:{DEBIAN}\nCOPY . /opt/spark\nENV SPARK_HOME=/opt/spark\n"
    )
    engine.docker("build", "--quiet", "--tag", image, str(context))
    shutil.rmtree(context)
    return image
