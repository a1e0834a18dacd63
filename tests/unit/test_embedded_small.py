"""Ports, keys, addresses and accounts of the private servers; nothing is started."""

import os
import pwd
import socket
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from approvals.embedded import accounts, keys, ports, roles
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.lock import Lock


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_taken_port_is_named_with_its_holder_and_the_option(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        try:
            holder.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(
            EmbeddedError, match=rf"Port {port} for the web server is taken by .*\(pid {os.getpid()}\)"
        ):
            ports.require_free(port, purpose="the web server")
        with pytest.raises(EmbeddedError, match="--sandbox-port PORT"):
            ports.require_free(port, purpose="the sandbox", option="--sandbox-port")


def test_a_free_port_is_free() -> None:
    port = ports.free_port()
    ports.require_free(port, purpose="the web server")
    assert not ports.is_open(port)
    assert not ports.http_ok(port, "/healthz")


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_an_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(EmbeddedError, match="--port"):
        ports.require_free(port, purpose="the web server")


def test_keys_are_made_once_private_and_usable(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = keys.load_or_generate(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.load_or_generate(path) == made
    assert made != keys.generate()
    Fernet(made.encryption_key)
    assert made.secret_key not in repr(made)
    assert [item.name for item in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"secret_key": "x"}'])
def test_damaged_keys_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(EmbeddedError, match=r"keys\.json.*Put the file back"):
        keys.load_or_generate(path)


def test_the_environment_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / ".local").mkdir()
    values = {"DATABASE_URL": "postgresql://a:b=c@127.0.0.1:1/x?y=z", "SECRET_KEY": "a#b"}
    keys.write_environment(tmp_path / ".local" / "environment", values)
    assert keys.local_environment(tmp_path) == values
    assert keys.local_environment(tmp_path / "elsewhere") is None


def test_an_address_keeps_all_but_the_database() -> None:
    assert (
        roles.with_database("postgresql://a:b@127.0.0.1:5/old", "new") == "postgresql://a:b@127.0.0.1:5/new"
    )


def test_addresses_are_not_shown_by_accident() -> None:
    urls = roles.PostgresUrls(owner_url="secret", app_url="secret", superuser_url="secret")
    assert "secret" not in repr(urls)


def test_the_lock_is_free_again_after_its_holder(tmp_path: Path) -> None:
    with (
        Lock(tmp_path),
        pytest.raises(EmbeddedError, match=f"already running as pid {os.getpid()}"),
        Lock(tmp_path),
    ):
        pass
    with Lock(tmp_path):
        pass


def test_without_root_the_servers_run_as_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert accounts.engine_account() is None
    assert accounts.can_reach(None, [Path("/root")])


def test_root_needs_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_root(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", only_root)
    with pytest.raises(EmbeddedError, match=r"refuses to run as root.*DATABASE_URL"):
        accounts.engine_account()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask for another user")
def test_the_kernel_is_asked_about_every_folder_above(tmp_path: Path) -> None:
    account = accounts.engine_account()
    inner = tmp_path / "closed" / "open" / "inner"
    inner.mkdir(parents=True)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        assert folder.stat().st_uid == 0
    assert not accounts.can_reach(account, [inner])  # pytest's own folder is 0700
    assert accounts.can_reach(account, [Path("/usr/bin"), Path("/etc/passwd")])
    assert not accounts.can_reach(account, [Path("/usr/bin"), inner])
