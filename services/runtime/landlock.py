"""Landlock: a process restricts, for itself and its children, files and TCP ports.

https://docs.kernel.org/userspace-api/landlock.html. The kernel's interface is versioned ("ABI").
Rights unknown to a kernel are left out, so `Rules` are enforced as far as `abi()` supports them:
1 files, 2 moving between folders, 3 truncating, 4 TCP, 5 ioctl of devices, 6 signals and abstract
sockets. ABI 1 cannot allow moves between folders at all, so it counts as no support.
"""

import ctypes
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIN_ABI: Final = 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture except Alpha
_ASK_VERSION: Final = 1
_SET_NO_NEW_PRIVS: Final = 38
_PATH_BENEATH, _NET_PORT = 1, 2
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_SYM = (1 << n for n in (4, 5, 7, 8, 12))
_REFER: Final = 1 << 13
# Granted rights never include executing, or making devices, sockets or pipes.
_READ: Final = _READ_FILE | _READ_DIR
_WRITE: Final = (
    _WRITE_FILE
    | _TRUNCATE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SYM
    | _REFER
)
_OF_FILES: Final = _READ_FILE | _WRITE_FILE | _TRUNCATE
_BIND, _CONNECT = 1, 2
_ALL_SCOPES: Final = 3
_FS_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}  # number of rights by ABI; 16 from ABI 5 on
_FIRST_WITH_TCP, _FIRST_WITH_SCOPES = 4, 6
_KERNEL_FILES: Final = ("/proc/", "/sys/")


class LandlockError(RuntimeError):
    """The process could not be restricted; the text is one sentence with the reason."""


@dataclass(frozen=True)
class Rules:
    """The allowed access; everything else is denied.

    read, write: files, or folders with all contents; missing ones are skipped. bind, connect: TCP
    ports; None leaves connecting unrestricted.
    """

    read: tuple[Path, ...]
    write: tuple[Path, ...]
    bind: tuple[int, ...] = ()
    connect: tuple[int, ...] | None = ()


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _NetPortAttr(ctypes.Structure):
    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """Landlock version of this kernel; 0 if it is absent or disabled."""
    if platform.system() != "Linux":
        return 0
    asked: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    return max(0, asked)


def restrict(rules: Rules) -> None:
    """Permanently drop all access except `rules`. Raises LandlockError, with nothing dropped.

    Must be called while the process has one thread: other threads would keep their access. Open
    files stay usable.
    """
    version = abi()
    if version < MIN_ABI:
        raise LandlockError(f"this kernel has no Landlock, or an old version (ABI {version})")
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise LandlockError(f"{threads} threads are already running and would not be restricted")
    ruleset = _new_ruleset(version, rules)
    try:
        handled = _handled(version)
        for paths, rights in ((rules.read, _READ), (rules.write, _READ | _WRITE)):
            for path in paths:
                _allow_path(ruleset, path, rights & handled)
        if version >= _FIRST_WITH_TCP:
            _allow_ports(ruleset, rules.bind, _BIND)
            _allow_ports(ruleset, rules.connect or (), _CONNECT)
        _checked(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _checked(_libc().syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _handled(version: int) -> int:
    return (1 << _FS_RIGHTS.get(version, 16)) - 1


def _new_ruleset(version: int, rules: Rules) -> int:
    net = _BIND | (0 if rules.connect is None else _CONNECT)
    attr = _RulesetAttr(
        _handled(version),
        net if version >= _FIRST_WITH_TCP else 0,
        _ALL_SCOPES if version >= _FIRST_WITH_SCOPES else 0,
    )
    # Old kernels accept a longer structure if the fields they do not know are 0.
    ruleset = _libc().syscall(
        _CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(ctypes.sizeof(attr)), 0
    )
    return _checked(ruleset, "landlock_create_ruleset")


def _allow_path(ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # missing or not permitted
    allowed = rights if path.is_dir() else rights & _OF_FILES
    attr = _PathBeneathAttr(allowed, opened)
    done = _libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(attr), 0)
    # A rule applies to an inode, and the kernel recreates the inodes of its own files once nobody
    # has them open.
    if not str(path).startswith(_KERNEL_FILES):
        os.close(opened)
    _checked(done, f"landlock_add_rule of {path}")


def _allow_ports(ruleset: int, ports: Iterable[int], right: int) -> None:
    for port in ports:
        attr = _NetPortAttr(right, port)
        done = _libc().syscall(_ADD_RULE, ruleset, _NET_PORT, ctypes.byref(attr), 0)
        _checked(done, f"landlock_add_rule of port {port}")


def _checked(result: int, name: str) -> int:
    if result < 0:
        raise LandlockError(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
