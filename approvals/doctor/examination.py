"""The whole examination in its order. What cannot be asked because something before it failed is left out."""

from collections.abc import Iterator

from approvals.doctor import database, surroundings, work
from approvals.doctor.findings import Finding, Level


def examine(*, quick: bool = False) -> Iterator[Finding]:
    """Every finding, as soon as it is known. Changes nothing."""
    yield surroundings.python_version()
    yield from surroundings.settings_findings()
    yield surroundings.encryption_keys()
    yield from surroundings.broker()
    answer = database.reachable()
    yield answer
    if answer.level is Level.FAIL:
        return
    fenced = True
    for finding in database.role():
        fenced = fenced and (finding.check != "role" or finding.level is Level.OK)
        yield finding
    tables = database.migrations()
    yield tables
    if tables.level is Level.FAIL:
        return
    yield database.row_security()
    if fenced:  # whoever bypasses everything holds every privilege
        yield database.privileges()
    yield database.append_only()
    yield from database.clocks()
    yield from work.findings(quick=quick)
