"""What `manage.py doctor` says of settings, keys, the broker and clocks; no database is needed for it."""

import socket
import time

import pytest
import redis
from pytest_django.fixtures import Settings

from approvals.doctor import database, surroundings
from approvals.doctor.findings import Level
from tests import engines


@pytest.mark.parametrize(("keys", "says"), [([], "is empty"), (["nonsense"], "no Fernet key")])
def test_encryption_keys_are_needed(settings: Settings, keys: list[str], says: str) -> None:
    settings.ENCRYPTION_KEYS = keys
    finding = surroundings.encryption_keys()
    assert finding.level is Level.FAIL
    assert says in finding.said
    assert "Fernet.generate_key" in finding.mend


def test_a_broker_that_is_gone_or_silent_is_said_quickly(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (1, silent.getsockname()[1]):
            settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
            began = time.monotonic()
            (finding,) = surroundings.broker()
            assert time.monotonic() - began < 2
            assert finding.level is Level.FAIL
            assert "REDIS_URL" in finding.mend


def test_a_broker_that_may_drop_messages_is_named() -> None:
    client = redis.Redis.from_url(engines.current().redis_url)
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        version, memory = surroundings.broker()
        assert version.level is Level.OK
        assert memory.level is Level.WARN
        assert "allkeys-lru" in memory.said
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.close()


def test_an_old_python_is_named() -> None:
    assert surroundings.python_version((3, 11, 9)).level is Level.FAIL
    assert surroundings.python_version((3, 12, 0)).level is Level.OK


@pytest.mark.parametrize(
    ("base_url", "hosts", "level"),
    [
        ("http://localhost:8000", ["localhost"], Level.OK),
        ("http://127.0.0.1:8000", ["127.0.0.1"], Level.OK),
        ("https://keys.example.com", ["keys.example.com"], Level.OK),
        ("https://keys.example.com", [".example.com"], Level.OK),
        ("http://keys.example.com", ["keys.example.com"], Level.WARN),
        ("http://10.0.0.5", ["10.0.0.5"], Level.WARN),
        ("https://keys.example.com", ["*"], Level.WARN),
        ("https://keys.example.com", ["other.example.com"], Level.FAIL),
    ],
)
def test_the_address_that_people_open(
    settings: Settings, base_url: str, hosts: list[str], level: Level
) -> None:
    settings.BASE_URL, settings.ALLOWED_HOSTS = base_url, hosts
    settings.HTTPS = base_url.startswith("https://")
    finding = surroundings.address()
    assert finding.level is level
    assert bool(finding.mend) is (level is not Level.OK)


def test_settings_for_developing_are_named(settings: Settings) -> None:
    settings.DEBUG = True
    settings.SECRET_KEY = "x" * 60
    assert surroundings.debug().level is Level.WARN
    assert surroundings.secret_key().level is Level.WARN
    settings.TIME_ZONE = "Asia/Kolkata"
    assert surroundings.time_zone().level is Level.FAIL  # K67


@pytest.mark.parametrize(
    ("before", "theirs", "after", "level"),
    [
        (100.0, 100.0, 100.0, Level.OK),
        (100.0, 101.9, 100.0, Level.OK),
        (100.0, 102.1, 100.0, Level.WARN),
        (102.1, 100.0, 102.2, Level.WARN),
        (100.0, 105.0, 110.0, Level.OK),  # a slow answer is no skew
        (3700.0, 100.0, 3700.1, Level.WARN),
    ],
)
def test_a_host_whose_clock_is_off_is_named(before: float, theirs: float, after: float, level: Level) -> None:
    finding = database.skew(before, theirs, after)
    assert finding.level is level
    if level is Level.WARN:
        assert "Nothing is decided by this host's clock" in finding.mend


def test_the_demo_s_stopped_servers_have_a_shorter_cure(settings: Settings) -> None:
    settings.EMBEDDED = settings.CONFIGURED = True
    assert "manage.py demo" in database.how_to_reach_it()
