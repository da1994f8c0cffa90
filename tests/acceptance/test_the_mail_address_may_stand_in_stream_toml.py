"""`smtp_url` in stream.toml, instead of STREAM_SMTP_URL."""

import shutil
from pathlib import Path
from typing import Any

import psycopg

from stream import Outbox
from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.orders import an_order
from tests.support.processes import run

ROOT = Path(__file__).resolve().parents[2]


def test_the_mail_address_may_stand_in_stream_toml(
    environment: dict[str, str], project: Project, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for folder in ("consumers", "schemas"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    with MailProvider() as provider:
        (tmp_path / "stream.toml").write_text(f'smtp_url = "{provider.url}"\n', encoding="utf-8")
        assert run("migrate", env=environment, cwd=tmp_path).wait() == 0
        conn.execute("insert into shop.customer values ('17850', 'customer-17850@example.com')")
        Outbox(project).append(conn, "OrderPlaced", key="1", data=an_order())
        conn.commit()
        assert run("relay", "--once", env=environment, cwd=tmp_path).wait() == 0
        email = run("consume", "--group", "email", "--exit-at-end", env=environment, cwd=tmp_path)
        assert email.wait() == 0, email.stderr

    assert [mail.recipients for mail in provider.mails] == [("customer-17850@example.com",)]
