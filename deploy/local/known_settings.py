"""The names of all settings. Importing the modules that define them takes 30 ms."""

from importlib import import_module

from services.runtime.settings import ROOT, ServiceSettings

OF_SERVICES = (
    f"services.{path.parent.name}.settings" for path in (ROOT / "services").glob("*/settings.py")
)
MODULES = (*OF_SERVICES, "deploy.local.broker", "deploy.local.supervisor")


def known_settings() -> set[str]:
    """Names of all settings, in lower case."""
    defined = (value for name in MODULES for value in vars(import_module(name)).values())
    return {
        field
        for kind in defined
        if isinstance(kind, type) and issubclass(kind, ServiceSettings)
        for field in kind.model_fields
    }
