"""Install `.venv` from `requirements.lock` and `.jars` from `jars.lock`; idempotent.

    python3 -m deploy.local.install
    python3 -m deploy.local.install watch    for `watch --export` alone: .venv-watch, and no jars

Run by `./tidegauge` with the system Python, so this module needs the standard library only. An
interrupted installation is resumed by the next one: everything without a stamp is rebuilt from the
tools' caches. Concurrent installations wait for each other; the lock is released when its owner
dies. Fails with one line on standard error that names the step and the last line of the tool's
output.

Every package, including build tools, and every jar is verified against a SHA-256 in a lock, so no
server has to be trusted. Addresses in the environment must be https nevertheless; settings that
the tools read elsewhere are not checked. What pip.conf says about index, certificate and proxy
holds for uv too, which does not read that file, unless uv has a configuration file of its own.
"""

import configparser
import fcntl
import ipaddress
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from services.runtime.before_install import has_python, without_jvm_options

ROOT = Path(__file__).resolve().parents[2]
# Other users may run installed programs, but not change them.
OTHERS_WRITE = 0o022
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
BUILD_LOCK = "deploy/local/build.lock"  # build tools of packages published as source
NEEDED_FREE_BYTES = 3 * 1024**3
NEEDED_FREE_BYTES_WATCH = 1024**3
WATCH, WATCH_LOCK = ".venv-watch", ".jars/watch.lock"
# Messages of pip and uv for network failures; pip's last line only says that nothing was found.
NETWORK_FAILURES = (
    "Failed to establish a new connection",
    "name resolution",
    "Name or service not known",
    "dns error",
    "error sending request",
)
MIRROR = "TIDEGAUGE_MAVEN_REPOSITORY"
# Each contains addresses or folders separated by spaces or commas, some as NAME=ADDRESS.
ADDRESSES = (
    MIRROR,
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
)


# Names in pip.conf, and the variables of pip and uv with the same meaning.
PIP_SETTINGS = {
    "index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    "find-links": ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
    "trusted-host": ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
    "no-index": ("PIP_NO_INDEX", "UV_NO_INDEX"),
    "cert": ("PIP_CERT", "SSL_CERT_FILE"),
    "client-cert": ("PIP_CLIENT_CERT", "SSL_CLIENT_CERT"),
    "proxy": ("PIP_PROXY", "ALL_PROXY"),
}
PASSWORD = re.compile(r"://[^/@\s]+@")


class InstallError(Exception):
    """The installation cannot continue; the text is one sentence."""


def main() -> int:
    """Install what is missing below the root of the repository."""
    os.umask(os.umask(OTHERS_WRITE) | OTHERS_WRITE)
    try:
        (install_watch if sys.argv[1:] == ["watch"] else install)(ROOT)
    except InstallError as error:
        say(str(error))
        return EXIT_FAILED
    except OSError as error:
        say(f"installing failed: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("interrupted; the next start resumes from here")
        return EXIT_INTERRUPTED
    return 0


def install(root: Path) -> None:
    """Bring `.venv` and `.jars` of the repository `root` up to date. Raises InstallError."""
    check_addresses(os.environ)
    (root / ".jars").mkdir(exist_ok=True)
    with closing(locked(root / ".jars" / "install.lock")):
        stamp = root / ".venv" / "installed.lock"
        if not has_python(root / ".venv"):
            stamp.unlink(missing_ok=True)
        jars = [sys.executable, "-m", "deploy.local.jars"]
        with ExitStack() as steps:
            if not same(root / "deploy/local/jars.lock", root / ".jars" / "installed.lock"):
                steps.enter_context(meanwhile("fetching the jars", jars, root))
            if not same(root / "requirements.lock", stamp):
                install_packages(root)
        for folder in (root / ".venv", root / ".jars"):
            close_to_writers(folder)


def install_watch(root: Path) -> None:
    """Bring `.venv-watch` of the repository `root` up to date: the packages of the lock that the
    project needs without extras. Raises InstallError."""
    from deploy.dependencies.lock import needed_lock  # not in the wheel

    check_addresses(os.environ)
    (root / ".jars").mkdir(exist_ok=True)
    with closing(locked(root / ".jars" / "install.lock")):
        stamp = root / WATCH / "installed.lock"
        if not has_python(root / WATCH):
            stamp.unlink(missing_ok=True)
        if not same(root / "requirements.lock", stamp):
            (root / WATCH_LOCK).write_text(needed_lock(root))
            install_packages(root, WATCH, WATCH_LOCK, NEEDED_FREE_BYTES_WATCH)
        close_to_writers(root / WATCH)


def close_to_writers(folder: Path) -> None:
    """Remove write permissions of others, which may come from a tool's cache."""
    for place, folders, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in (*folders, *files))):
            result = os.lstat(path)
            mode = stat.S_IMODE(result.st_mode)
            is_ours = result.st_uid == os.geteuid() and not stat.S_ISLNK(result.st_mode)
            if is_ours and mode & OTHERS_WRITE:
                os.chmod(path, mode & ~OTHERS_WRITE)


def check_addresses(environ: Mapping[str, str]) -> None:
    """Raise InstallError, which names the variable, for an insecure address."""
    for name in ADDRESSES:
        for word in environ.get(name, "").replace(",", " ").split():
            address = word.partition("=")[2] if "=" in word.partition("://")[0] else word
            if "://" in address and not is_secure(address):
                raise InstallError(insecure(name))


def insecure(name: str) -> str:
    """Error text for a variable. It omits the address, which may contain a password."""
    return f"{name} must begin with https:// (http:// serves on loopback only)"


def is_secure(address: str) -> bool:
    """Whether an address is https, a local file, or http on loopback."""
    try:
        url = urlsplit(address)
        if url.scheme == "http":
            host = url.hostname or ""
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return url.scheme == "file" or (url.scheme == "https" and bool(url.hostname))


class _Lock:
    """An exclusive file lock, released by the kernel when its holders have ended.

    Child processes inherit it: an orphaned tool that still installs still holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.set_inheritable(self._fd, True)

    def acquire(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another tidegauge that is installing")
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def close(self) -> None:
        os.close(self._fd)


def locked(path: Path) -> _Lock:
    """The lock on `path`, held until it is closed."""
    lock = _Lock(path)
    lock.acquire()
    return lock


def same(wanted: Path, stamp: Path) -> bool:
    """Whether a stamp equals the file it was copied from."""
    return stamp.is_file() and stamp.read_bytes() == wanted.read_bytes()


def venv_python(root: Path, folder: str = ".venv") -> Path:
    """The interpreter of an environment of the repository."""
    return root / folder / "bin" / "python"


def install_packages(
    root: Path,
    folder: str = ".venv",
    lock: str = "requirements.lock",
    free_bytes: int = NEEDED_FREE_BYTES,
) -> None:
    """Install exactly the packages of a lock into an environment, with hashes verified. free_bytes:
    disk space that this needs."""
    venv = root / folder
    stamp = venv / "installed.lock"
    check_room(root, free_bytes)
    uv = shutil.which("uv")
    # An environment that uv has created has no pip, which would have to install uv.
    can_be_updated = stamp.exists() and (uv is not None or (venv / "bin" / "pip").exists())
    if venv.exists() and not can_be_updated:
        shutil.rmtree(venv)
    stamp.unlink(missing_ok=True)
    if not venv.exists():
        size = "1.5 GB, a minute or two" if folder == ".venv" else "150 MB"
        say(f"creating {folder} for the Python packages (first use; about {size})")
        make_venv(root, uv, folder)
    else:
        say("updating the Python packages")
    uv = uv or install_uv(root, folder)
    into = ["--require-hashes", "--python", str(venv_python(root, folder))]
    # Isolated builds would fetch build tools of any version, without hashes.
    build = [uv, "pip", "install", *into, "-r", BUILD_LOCK]
    run("installing the build tools", build, root)
    sync = [uv, "pip", "sync", *into, "--no-build-isolation", lock]
    run("installing the Python packages", sync, root)
    shutil.copyfile(root / "requirements.lock", stamp.with_suffix(".new"))
    stamp.with_suffix(".new").replace(stamp)


def make_venv(root: Path, uv: str | None, folder: str) -> None:
    """Create an empty environment of the running interpreter, with venv if there is no uv."""
    if uv is not None:
        command = [uv, "venv", "--python", sys.executable, folder]
    elif importable("ensurepip"):
        command = [sys.executable, "-m", "venv", folder]
    else:
        raise InstallError(
            "this Python cannot create environments; install its venv package"
            " (python3-venv on Debian and Ubuntu) or uv"
        )
    run(f"creating {folder}", command, root)


def importable(module: str) -> bool:
    """Whether a standard library module exists; some distributions package it separately."""
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install_uv(root: Path, folder: str) -> str:
    """Install the locked uv into an environment; returns its path."""
    python = venv_python(root, folder)
    command = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes"]
    run("installing uv", [*command, "-r", "deploy/local/uv.lock"], root)
    return str(python.with_name("uv"))


def check_room(root: Path, free_bytes: int) -> None:
    """Raise InstallError if there is too little disk space for the packages."""
    free = shutil.disk_usage(root).free
    if free < free_bytes:
        raise InstallError(
            f"only {free // 1024**2} MB are free in {root};"
            f" the installation needs {free_bytes // 1024**2} MB"
        )


@contextmanager
def meanwhile(step: str, command: Sequence[str], root: Path) -> Iterator[None]:
    """A tool that runs in the root folder during the block, which waits for it at its end, and
    ends it if the block fails. Raises InstallError with the last line of its output."""
    try:
        tool = subprocess.Popen(
            command,
            cwd=root,
            env=tool_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise InstallError(f"{step} failed: {error}") from error
    with tool:
        try:
            yield
            output = tool.communicate()[0]
        except BaseException:
            tool.kill()
            raise
    if tool.returncode != 0:
        raise InstallError(f"{step} failed: {reason(output, tool.returncode)}")


def run(step: str, command: Sequence[str], root: Path) -> None:
    """Run one tool in the root folder. Raises InstallError with the last line of its output."""
    with meanwhile(step, command, root):
        pass


def reason(output: str, code: int) -> str:
    """The reason of a tool's failure: a full disk, no network, or else its last output line."""
    if "No space left on device" in output:
        return "the disk is full"
    output = PASSWORD.sub("://", output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {code}"
    if any(failure in output for failure in NETWORK_FAILURES):
        return f"the network does not answer ({last})"
    return last


def tool_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without options for all JVMs, with the settings of pip set for uv
    unless uv has its own, and without uv's cache if that cannot be written."""
    merged = without_jvm_options(environ)
    of_file = {} if has_uv_settings(environ) else pip_settings(environ)
    for name, (pip_name, uv_name) in PIP_SETTINGS.items():
        if value := environ.get(pip_name) or of_file.get(name):
            merged.setdefault(pip_name, value)
            merged.setdefault(uv_name, value)
    if "UV_CACHE_DIR" not in environ and not can_be_written(caches(environ)):
        merged.setdefault("UV_NO_CACHE", "1")
    return merged


def has_uv_settings(environ: Mapping[str, str]) -> bool:
    """Whether uv has a configuration file of the user or of the machine."""
    own = Path(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "uv/uv.toml"
    return "UV_CONFIG_FILE" in environ or own.is_file() or Path("/etc/uv/uv.toml").is_file()


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of pip's configuration files for an installation, by their names in pip.conf; later
    files win, and `[install]` wins over `[global]`. A file that cannot be read counts as none."""
    result: dict[str, str] = {}
    for section in ("global", "install"):
        for path in pip_files(environ):
            file = configparser.RawConfigParser()
            try:
                file.read(path, encoding="utf-8")
            except (configparser.Error, OSError, UnicodeDecodeError):
                continue
            if file.has_section(section):
                options = {name.replace("_", "-"): value for name, value in file.items(section)}
                result |= {name: " ".join(value.split()) for name, value in options.items()}
    return result


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """pip's configuration files in the order in which pip reads them: of the machine, the user, the
    running Python, and PIP_CONFIG_FILE, which as /dev/null disables all."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    machine = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(folder) / "pip/pip.conf" for folder in machine]
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf", user / "pip/pip.conf"]
    return [*files, Path(sys.prefix) / "pip.conf", *([Path(named)] if named else [])]


def caches(environ: Mapping[str, str]) -> Path:
    """The user's folder for caches, existing or not, by the XDG base directory specification."""
    return Path(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def can_be_written(folder: Path) -> bool:
    """Whether files can be created in a folder, which may have to be created first."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def say(text: str) -> None:
    """Print one progress line."""
    print(f"tidegauge: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
