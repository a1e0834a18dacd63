"""The documentation: served to everybody, held against the code it speaks of, and its installation carried out."""

import ast
import json
import re
import secrets
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.test import Client
from pytest_django.fixtures import Settings

from approvals import docs, kinds, variables
from approvals.api.errors import CATALOGUE
from approvals.models import ActionStatus
from approvals.policy.rules import parse
from approvals.variables import VARIABLES
from ledger.providers.stripe import STRIPE
from ledger.states import Allowance, OperationState
from tests import engines
from tests.command_line import ROOT, manage

pytestmark = pytest.mark.usefixtures("db")

READERS = {"env", "env_bool", "env_number", "env_int", "env_list"}
ADDRESSES = ["/docs/", *(f"/docs/{page.slug}/" for page in docs.PAGES)]


class Read(HTMLParser):
    """What a page holds: its ids, its links, its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []  # type: ignore[list-item]
        self.links += [given["href"]] if tag == "a" and given.get("href") else []  # type: ignore[list-item]
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """All words, white space made one."""
        return " ".join("".join(self.words).split())


def read(path: str) -> Read:
    """A page as a visitor gets it."""
    answer = Client().get(path)
    assert answer.status_code == 200, path
    return Read(answer.content.decode())


@pytest.mark.parametrize("path", ADDRESSES)
def test_everybody_may_read_every_page(path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    page = Read(answer.content.decode())
    assert page.headings.count("h1") == 1
    assert len(page.ids) == len(set(page.ids))
    assert "{{" not in page.text
    assert "{%" not in page.text
    assert Client().head(path).status_code == 200
    assert Client().post(path).status_code == 405
    fragment = Client().get(path, headers={"HX-Request": "true"})
    assert b"<html" not in fragment.content
    assert b"<h1>" in fragment.content


def test_there_is_no_other_page() -> None:
    assert Client().get("/docs/nothing/").status_code == 404
    assert Client().get("/docs/page/").status_code == 404


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_link_leads_somewhere(path: str) -> None:
    client = Client()
    for link in read(path).links:
        address, _, anchor = link.partition("#")
        if not address.startswith("/"):
            assert not address, f"{link} leads out of the installation"
            address = path
        answer = client.get(address)
        assert answer.status_code in {200, 302}, link
        if anchor and answer.status_code == 200:
            assert anchor in Read(answer.content.decode()).ids, link


def read_by_settings() -> dict[str, dict[str, Any]]:
    """Every variable that the settings file reads, with the bounds that stand there."""
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(ast.parse((ROOT / "approvals" / "settings.py").read_text())):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Name)
            or node.func.id not in READERS
        ):
            continue
        if not (node.args and isinstance(node.args[0], ast.Constant)):
            continue  # the readers' own definitions hand their names on
        bounds = {
            one.arg: eval(compile(ast.Expression(one.value), "bounds", "eval"))
            for one in node.keywords
            if one.arg in {"low", "high"}
        }
        known = found.setdefault(str(node.args[0].value), {})
        known |= bounds
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            known["default"] = node.args[1].value
    return found


def test_every_variable_is_documented_with_its_bounds_and_its_default() -> None:
    known = read_by_settings()
    assert len(known) > 15
    assert {variable.name for variable in VARIABLES} == set(known)
    page = read("/docs/install/")
    for variable in VARIABLES:
        assert variable.name in page.ids
        assert variable.what.replace("`", "") in page.text
        bounds = known[variable.name]
        assert (variable.low, variable.high) == (bounds.get("low"), bounds.get("high")), variable.name
        default = bounds.get("default")
        if default is not None and default != "" and variable.name != "DATABASE_URL":
            said = str(int(default)) if isinstance(default, bool) else f"{default}"
            assert variable.default == said, variable.name
        if variable.bounds:
            assert variable.bounds[1:] in page.text


def test_every_error_is_listed_and_linked() -> None:
    page = read("/docs/agents/")
    assert CATALOGUE
    for code in CATALOGUE.values():
        assert f"/v1/docs#{code.code}" in page.links
        assert code.advice.replace("`", "") in page.text


def test_the_expiry_of_keys_is_published(settings: Settings) -> None:  # R-A4
    page = read("/docs/agents/")
    assert "expiry" in page.ids
    assert "A key is kept for 24 hours from its first use" in page.text
    settings.IDEMPOTENCY_RETENTION = settings.IDEMPOTENCY_RETENTION * 7
    assert "A key is kept for 168 hours" in read("/docs/agents/").text


def test_the_states_and_reasons_are_those_of_the_code() -> None:
    page = read("/docs/once/")
    for word in (*OperationState, *ActionStatus, *(set(Allowance) - {Allowance.FIRST})):
        assert str(word) in page.words, word
    assert STRIPE.key_retention is not None
    assert "Kept for 24 hours; not relied on in the last 1 hour." in page.text
    assert "Not documented" in page.text


def test_the_policy_that_is_shown_is_one() -> None:
    assert docs.POLICY.strip() in "".join(read("/docs/install/").words)
    assert len(parse(json.loads(docs.POLICY)).rules) == 2


def test_the_request_that_is_shown_is_valid() -> None:
    text = "".join(read("/docs/agents/").words)
    body = json.loads(re.search(r"-d '(\{.*?\})'", text, re.DOTALL).group(1))  # type: ignore[union-attr]
    kind = kinds.get(body["kind"])
    parameters = {**body["parameters"], "payment": "pi_3Q"}
    assert kind.versions[kind.latest].validate(parameters) == []
    assert set(body) <= {"kind", "run_id", "step_id", "parameters", "reasoning", "expires_in"}


def readme() -> str:
    return (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("heading", "ends"), [("Run it", "manage.py demo"), ("Test it", "-m pytest -n 2 --dist loadfile")]
)
def test_the_readme_runs_with_one_line(heading: str, ends: str) -> None:
    section = re.search(rf"^## {heading}\s*$(.*?)(?=^## |\Z)", readme(), re.MULTILINE | re.DOTALL)
    assert section is not None
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", section.group(1), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    (line,) = blocks[0].strip().splitlines()
    assert line.endswith(ends)
    assert "--require-hashes" in line
    assert "3.12" in line


def test_the_readme_leads_to_every_page() -> None:
    text = readme()
    for page in docs.PAGES:
        assert f"`/docs/{page.slug}/`" in text
        assert f"(templates/{page.template})" in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / target).exists(), target


PREFIX = "docs_" + secrets.token_hex(3)


@pytest.fixture
def own_servers() -> Iterator[dict[str, str]]:
    """What an administrator has after running the SQL of the page as a superuser: the variables to set."""
    password = secrets.token_hex(12)
    script = variables.ROLES_SQL.replace("second_key", PREFIX).replace("…", password)
    before, _, after = script.partition(f"\\connect {PREFIX}\n")
    superuser = engines.current().superuser_url
    server = superuser.split("@")[1].rsplit("/", 1)[0]
    try:
        for part, database in ((before, superuser.rsplit("/", 1)[1]), (after, PREFIX)):
            with psycopg.connect(superuser.rsplit("/", 1)[0] + f"/{database}", autocommit=True) as connection:
                for statement in part.split(";"):
                    if statement.strip():
                        connection.execute(statement.encode())
        yield {
            "DATABASE_URL": f"postgresql://{PREFIX}_app:{password}@{server}/{PREFIX}",
            "DATABASE_OWNER_URL": f"postgresql://{PREFIX}_owner:{password}@{server}/{PREFIX}",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "SECOND_KEY_ENCRYPTION_KEYS": settings.ENCRYPTION_KEYS[0],
            "REDIS_URL": engines.current().redis_url,
        }
    finally:
        engines.current().drop_database(PREFIX)
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute(f"DROP ROLE IF EXISTS {PREFIX}_app".encode())
            connection.execute(f"DROP ROLE IF EXISTS {PREFIX}_owner".encode())


def test_the_installation_of_the_page_works(own_servers: dict[str, str], tmp_path: Path) -> None:
    as_application = {name: value for name, value in own_servers.items() if name != "DATABASE_OWNER_URL"}

    def step(*words: str, standard_input: str = "", env: dict[str, str] = as_application) -> str:
        done = manage(*words, standard_input=standard_input, **env)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    assert manage("migrate", **as_application).returncode == 1
    step("migrate", env=own_servers)
    policy = tmp_path / "policy.json"
    policy.write_text(docs.POLICY)
    step("create_tenant", "acme", "--name", "Acme")
    step("create_admin", "acme", "ada", "--password-stdin", standard_input="a long enough passphrase\n")
    step(
        *("create_admin", "acme", "rana", "--roles", "reviewer", "--password-stdin"),
        standard_input="another long passphrase\n",
    )
    step("create_provider_account", "acme", "--secret-stdin", standard_input="sk_test_something\n")
    step("publish_policy", "acme", "refund", str(policy))
    assert step("create_agent", "acme", "support-bot", "--owner", "ada").startswith("sk2_")
    findings = json.loads(step("doctor", "--json"))["findings"]
    assert {finding["check"]: finding["level"] for finding in findings if finding["level"] != "ok"} == {}
