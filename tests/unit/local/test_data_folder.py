"""Owner and permissions of a data folder."""

import os
import stat
from pathlib import Path

import pytest

from deploy.local.stack import Stack
from deploy.local.startup import check_host, check_names
from deploy.local.state import StackError, check_owner, make_private
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit

NOBODY = 65_534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def closed(path: Path) -> list[str]:
    said: list[str] = []
    make_private(path, said.append)
    return said


def test_a_new_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert closed(tmp_path / "a" / "data") == []
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "data") == 0o700


@pytest.mark.parametrize("name", ["stack.lock", "kafka", "clickhouse"])
def test_a_data_folder_of_before_is_closed_and_that_is_told_once(tmp_path: Path, name: str):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).touch()
    (tmp_path / "data").chmod(0o755)
    assert closed(tmp_path / "data") == [f"removed access of other users to {tmp_path}/data"]
    assert mode(tmp_path / "data") == 0o700
    assert closed(tmp_path / "data") == []


def test_an_empty_folder_is_closed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    closed(tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700


def test_a_shared_folder_given_by_mistake_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "somebodys").touch()
    with pytest.raises(StackError, match=r"is accessible to other users \(mode 0755\) and has"):
        closed(tmp_path)
    assert mode(tmp_path) == 0o755


@only_root
@pytest.mark.parametrize("place", ["folder", "target of a link", "link"])
def test_what_belongs_to_another_user_is_refused_before_anything_in_it_is_read(
    tmp_path: Path, place: str
) -> None:
    folder, data = tmp_path / "folder", tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "stack.json").write_text("what they wrote")
    data.symlink_to(folder)
    if place == "link":
        os.lchown(data, NOBODY, NOBODY)
    else:
        os.chown(folder, NOBODY, NOBODY)
    stack = Stack(ServiceSettings(data=folder if place == "folder" else data))
    for verb in (stack.up, stack.up_detached, stack.down, stack.status):
        with pytest.raises(StackError, match=r"belongs to another user \(uid 65534\)"):
            verb()
    assert [path.name for path in folder.iterdir()] == ["stack.json"]


def test_a_link_of_ours_to_a_folder_of_ours_is_fine(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "data").symlink_to(tmp_path / "elsewhere")
    check_owner(tmp_path / "data")
    assert closed(tmp_path / "data") == []


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a{b}", "a\nb"])
def test_a_name_that_java_or_spark_would_take_apart_is_refused(name: str) -> None:
    with pytest.raises(StackError, match=r"in its name, which Java or an engine takes"):
        check_names(ServiceSettings(data=Path("/tide") / name))
    with pytest.raises(StackError, match="the folder of the jars"):
        check_names(ServiceSettings(data=Path("/tide"), jars=Path("/tide") / name))


@pytest.mark.parametrize("host", ["::1", "[::1]", "0:0:0:0:0:0:0:1", "fe80::1%eth0"])
def test_an_ipv6_address_is_refused_with_what_to_set(host: str) -> None:
    with pytest.raises(StackError, match=r"TIDEGAUGE_HOST is .*such as 127\.0\.0\.1"):
        check_host(ServiceSettings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_broker_needs_an_address_that_clients_can_reach(host: str) -> None:
    with pytest.raises(StackError, match="which stands for all addresses of this machine"):
        check_host(ServiceSettings(host=host))
    check_host(ServiceSettings(host=host, kafka_bootstrap="kafka:9092"))
    check_host(ServiceSettings())


@pytest.mark.parametrize("name", ["dätä folder", "back\\slash", "q'#%41[x]$z?* a", "水"])
def test_any_other_name_is_taken(name: str) -> None:
    check_names(ServiceSettings(data=Path("/tide") / name, jars=Path("/tide") / name))
