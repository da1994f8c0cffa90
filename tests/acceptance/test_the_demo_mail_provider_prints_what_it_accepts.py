"""`stream demo mail`, as somebody who tries the e-mail group runs it."""

import json
import signal
import smtplib
from pathlib import Path

from tests.support.processes import Command, run
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_mail_provider_prints_what_it_accepts(environment: dict[str, str]) -> None:
    provider = Command("demo", "mail", "--port", "0", env=environment, cwd=ROOT)
    provider.says("export STREAM_SMTP_URL=smtp://127.0.0.1:")
    port = int(provider.stderr.rpartition(":")[2])

    with smtplib.SMTP("127.0.0.1", port, timeout=10) as smtp:
        smtp.sendmail(
            "a@example.com", ["b@example.com"], b"Message-ID: <1@x>\r\nSubject: Your order 1\r\n\r\n"
        )
    until(lambda: provider.stdout)
    assert json.loads(provider.stdout) == {
        "message_id": "<1@x>",
        "recipients": ["b@example.com"],
        "subject": "Your order 1",
    }

    taken = run("demo", "mail", "--port", str(port), env=environment, cwd=ROOT)
    assert taken.wait() == 2
    assert f"port {port} cannot be used" in taken.stderr

    provider.send(signal.SIGINT)
    assert provider.wait() == 0
