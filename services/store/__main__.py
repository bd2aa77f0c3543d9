"""The store. Reads settings and secrets, raises the wall, and only then imports what runs SQL."""

import mimetypes
import sys

from services.runtime.process import disable_thread_caches, let_arrow_use_malloc
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import load_settings
from services.store.engines.wall import raise_wall, sealed
from services.store.settings import StoreSettings
from services.store.users import known_users


def main() -> None:
    """Run the store. On a fatal error it exits with code 1 and one line."""
    settings = load_settings(StoreSettings)
    try:
        users = known_users(settings.secrets_dir, settings.reads_are_anonymous)
        known = sealed(settings)
        wall = raise_wall(settings)
    except (OSError, SecretFileError) as error:
        print(f"tidegauge: store: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    let_arrow_use_malloc()
    disable_thread_caches()
    mimetypes.knownfiles.clear()  # which aiohttp would read, and the wall hides
    # The engine's libraries start threads on import, and the wall does not restrict threads that
    # already exist.
    from services.store.service import run

    run(known, users, wall)


if __name__ == "__main__":
    main()
