"""Private PostgreSQL and Valkey servers, and the processes of a local run.

For `manage.py demo` and the tests only. It runs before the settings are read, so nothing in here may
import Django, the models or the settings; and nothing in here may touch a file that it did not create.
"""
