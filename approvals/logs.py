"""Structured logs: one JSON object a line, control characters escaped by the encoding (CWE-117).

Facts that help an investigation go in as `extra={"action": "…"}`; request bodies and secrets never.
"""

import logging
from typing import Any

import structlog


def formatter() -> logging.Formatter:
    """The formatter that settings.LOGGING names."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True, default=str),
        ],
    )
