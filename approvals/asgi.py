"""The ASGI entry: `uvicorn approvals.asgi:application`. Django stays a WSGI application, on a few threads.

Under ASGI an async view would pin a thread for every waiting agent, and Django would run at half its speed;
so the threads answer, and only the waiting is asynchronous (`approvals.longpoll`).
"""

import os
from typing import cast

from a2wsgi import WSGIMiddleware
from a2wsgi.wsgi_typing import WSGIApp
from django.conf import settings

from approvals.asgitypes import Application
from approvals.chunked import WithLength
from approvals.longpoll import LongPoll
from approvals.wsgi import application as fenced

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")
django = WSGIMiddleware(cast("WSGIApp", fenced), workers=settings.WEB_THREADS)
application = LongPoll(WithLength(cast("Application", django)))
