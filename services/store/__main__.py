"""The store: read settings and secrets, raise the wall, and only then bring in what runs SQL."""

import sys

from services.runtime.secret_files import SecretFileError
from services.runtime.settings import load_settings
from services.store.settings import StoreSettings
from services.store.users import known_users
from services.store.wall import raise_wall, sealed


def main() -> None:
    """Run the store; exits with 1 and one line where it cannot go on."""
    settings = load_settings(StoreSettings)
    try:
        users = known_users(settings.secrets_dir, settings.reads_are_anonymous)
        known = sealed(settings)
        wall = raise_wall(settings)
    except (OSError, SecretFileError) as error:
        print(f"tidegauge: store: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    # The engine's libraries start threads when they are imported; a wall does not hold those that
    # are there before it.
    from services.store.service import run

    run(known, users, wall)


if __name__ == "__main__":
    main()
