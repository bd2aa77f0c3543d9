"""Downloads on first use, and their error messages."""

from pathlib import Path

import pytest

from deploy.local import engines
from deploy.local.install import (
    InstallError,
    check_addresses,
    close_to_writers,
    install_packages,
    is_secure,
    reason,
    same,
    tool_environment,
)
from deploy.local.jars import FetchError, Jar, jars_lock, read_jars_lock
from services.definitions.engines import Installed, load_engine

pytestmark = pytest.mark.unit


def test_every_tool_that_installs_checks_hashes_and_takes_pinned_build_tools(
    tmp_path: Path, monkeypatch
):
    said: list[list[str]] = []
    monkeypatch.setattr(
        "deploy.local.install.run", lambda _step, command, _root: said.append(command)
    )
    monkeypatch.setattr("shutil.which", lambda _name: "uv")
    monkeypatch.setattr("shutil.copyfile", lambda _source, to: to.touch())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed.lock").touch()
    install_packages(tmp_path)
    build, sync = said
    assert build[:3] == ["uv", "pip", "install"]
    assert {"--require-hashes", "deploy/local/build.lock"} <= set(build)
    assert sync[:3] == ["uv", "pip", "sync"]
    assert {"--require-hashes", "--no-build-isolation", "requirements.lock"} <= set(sync)


@pytest.mark.parametrize("uv", ["uv", None])
def test_so_does_every_tool_that_installs_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: str | None
):
    said: list[list[str]] = []
    place = Installed(load_engine("flink-sql"), tmp_path)

    def run(_step: str, command: list[str], _root: Path) -> None:
        said.append(command)
        place.venv.mkdir(exist_ok=True)

    monkeypatch.setattr(engines, "run", run)
    monkeypatch.setattr(engines, "find_uv", lambda: uv)
    engines._install_packages(place)
    _make, build, fill = said
    assert {"install", "--no-deps", "--require-hashes", "deploy/local/build.lock"} <= set(build)
    assert {"install", "--no-deps", "--require-hashes", "--no-build-isolation"} <= set(fill)
    assert fill[-1] == str(place.python_lock)
    assert uv or "--use-pep517" in fill  # an older pip would need the package wheel


def test_a_line_of_a_lock_has_folder_coordinates_and_sha_256():
    text = f"# a comment\n\nbroker org.example:tide:1.2 {'0' * 64}\nrun a.b:c_2.13:1:all\n"
    tide, other = read_jars_lock(text).items()
    assert tide == (
        Path("broker/tide-1.2.jar"),
        Jar("broker", "org.example", "tide", "1.2", "", "0" * 64),
    )
    assert tide[1].address == "org/example/tide/1.2/tide-1.2.jar"
    path, jar = other
    assert (path, jar.sha256) == (Path("run/c_2.13-1-all.jar"), "")
    assert (jar.coordinates, jar.address) == ("a.b:c_2.13:1:all", "a/b/c_2.13/1/c_2.13-1-all.jar")


@pytest.mark.parametrize(
    "line",
    [
        "org.example:tide:1.2",
        "broker org.example:tide",
        "broker org.example:tide:1.2 0123",
        ".. org.example:tide:1.2",
        "broker/.. org.example:tide:1.2",
        "broker org.example:../tide:1.2",
        "broker org.example:tide:../1.2",
        "broker org.example:tide:1.2:/all",
        "broker org.example:tide:1.2?x",
    ],
)
def test_another_line_is_refused_and_shown(line: str):
    with pytest.raises(FetchError) as refused:
        read_jars_lock(line)
    assert str(refused.value).endswith(f", not {line!r}")


def test_a_jar_that_is_named_twice_is_refused():
    with pytest.raises(FetchError, match=r"^a lock names run/tide-1\.2\.jar twice$"):
        read_jars_lock("run org.example:tide:1.2\nrun net.example:tide:1.2\n")


def test_the_lock_names_broker_and_connectors():
    paths = set(jars_lock())
    assert Path("broker/kafka_2.13-4.3.1.jar") in paths
    assert Path("spark/spark-sql-kafka-0-10_2.13-4.2.0.jar") in paths
    assert {path.parent.name for path in paths} == {"agent", "broker", "spark"}


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("resolving\nerror: no route to host\n\n", "error: no route to host"),
        ("writing\nOSError: [Errno 28] No space left on device\nTraceback", "the disk is full"),
        (
            "WARNING: Failed to establish a new connection\nERROR: No matching distribution",
            "the network does not answer (ERROR: No matching distribution)",
        ),
        ("", "exit code 7"),
    ],
)
def test_a_failed_tool_is_told_by_its_last_line(output: str, told: str):
    assert reason(output, 7) == told


def test_uv_hears_of_pips_index_and_keeps_its_own():
    told = tool_environment({"PIP_INDEX_URL": "https://a.example", "SSL_CERT_FILE": "/mine"})
    assert told["UV_DEFAULT_INDEX"] == "https://a.example"
    given = {"PIP_CERT": "/theirs", "SSL_CERT_FILE": "/mine", "PIP_CONFIG_FILE": "/dev/null"}
    assert tool_environment(given) == given


def test_uv_hears_of_the_settings_in_pips_files(tmp_path: Path):
    """The file of the user, then that of PIP_CONFIG_FILE; the environment wins."""
    user = tmp_path / ".config/pip/pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text("[global]\nindex_url = https://user.example\ncert = /company.pem\n")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    told = tool_environment(home)
    assert told["UV_DEFAULT_INDEX"] == told["PIP_INDEX_URL"] == "https://user.example"
    assert told["SSL_CERT_FILE"] == "/company.pem"
    named = tmp_path / "pip.conf"
    named.write_text(
        "[global]\nindex-url = https://named.example\nproxy = http://proxy.example:3128\n"
        "[install]\nextra-index-url =\n    https://one.example\n    https://two.example\n"
    )
    told = tool_environment(home | {"PIP_CONFIG_FILE": str(named)})
    assert told["UV_DEFAULT_INDEX"] == "https://named.example"
    assert told["UV_INDEX"] == "https://one.example https://two.example"
    assert told["ALL_PROXY"] == "http://proxy.example:3128"
    told = tool_environment(home | {"PIP_INDEX_URL": "https://mine.example"})
    assert told["UV_DEFAULT_INDEX"] == "https://mine.example"
    assert "UV_DEFAULT_INDEX" not in tool_environment(home | {"PIP_CONFIG_FILE": "/dev/null"})
    own = home | {"UV_CONFIG_FILE": "uv.toml"}
    assert "UV_DEFAULT_INDEX" not in tool_environment(own)


def test_a_password_in_an_address_is_not_shown():
    told = reason("error: cannot reach https://me:secret@index.example/simple/x/", 1)
    assert told == "error: cannot reach https://index.example/simple/x/"


def test_uv_needs_no_cache_where_there_is_no_home(tmp_path: Path):
    (tmp_path / "file").touch()
    nowhere = {"XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}
    assert tool_environment(nowhere)["UV_NO_CACHE"] == "1"
    assert "UV_NO_CACHE" not in tool_environment(nowhere | {"UV_CACHE_DIR": "/mine"})
    assert "UV_NO_CACHE" not in tool_environment({"XDG_CACHE_HOME": str(tmp_path / "new")})


@pytest.mark.parametrize(
    ("address", "secure"),
    [
        ("https://repository.example/maven", True),
        ("http://repository.example/maven", False),
        ("http://127.0.0.1:8081/", True),
        ("http://[::1]:8081/", True),
        ("http://localhost/", True),
        ("http://localhost.example/", False),
        ("http://127.0.0.1.example/", False),
        ("http://127.0.0.1@repository.example/", False),
        ("http://[::1", False),
        ("HTTP://repository.example/", False),
        ("ftp://repository.example/", False),
        ("https://", False),
        ("file:///srv/maven", True),
    ],
)
def test_an_address_is_https_or_stays_on_the_machine(address: str, secure: bool):
    assert is_secure(address) is secure


@pytest.mark.parametrize(
    "environ",
    [
        {"PIP_INDEX_URL": "http://a.example/simple"},
        {"PIP_EXTRA_INDEX_URL": "https://a.example/simple http://b.example/simple"},
        {"UV_INDEX": "ours=http://a.example/simple"},
        {"UV_FIND_LINKS": "/opt/wheels,http://a.example/wheels"},
        {"TIDEGAUGE_MAVEN_REPOSITORY": "http://a.example/maven"},
    ],
)
def test_an_index_that_is_not_https_is_refused_by_name(environ: dict[str, str]):
    (name,) = environ
    with pytest.raises(InstallError, match=f"^{name} must begin with https:// "):
        check_addresses(environ)


def test_folders_and_https_indices_serve():
    check_addresses(
        {
            "PIP_FIND_LINKS": "/opt/wheels ../wheels",
            "UV_INDEX": "ours=https://a.example/simple?x=1 https://b.example/simple",
            "PIP_INDEX_URL": "",
        }
    )


def test_a_stamp_counts_only_when_it_equals_the_file_it_was_copied_from(tmp_path: Path):
    wanted, stamp = tmp_path / "wanted", tmp_path / "stamp"
    wanted.write_text("one")
    assert not same(wanted, stamp)
    stamp.write_text("one")
    assert same(wanted, stamp)
    wanted.write_text("two")
    assert not same(wanted, stamp)


def test_others_may_run_what_is_installed_and_cannot_change_it(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin").chmod(0o777)
    for name, mode in (("tool", 0o775), ("jar", 0o666)):
        (tmp_path / "bin" / name).touch()
        (tmp_path / "bin" / name).chmod(mode)
    (tmp_path / "bin" / "link").symlink_to("nowhere")
    close_to_writers(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "bin").glob("[!l]*")}
    assert modes == {"tool": 0o755, "jar": 0o644}
    assert (tmp_path / "bin").stat().st_mode & 0o777 == 0o755
