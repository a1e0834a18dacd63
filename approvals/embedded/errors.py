"""The one error of the embedded room. It must stay free of every other import of the project."""


class EmbeddedError(Exception):
    """The local servers cannot run. The message is for a person and says what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


OWN_SERVERS = (
    "To use servers of your own, set DATABASE_OWNER_URL (the role that migrates), DATABASE_URL (the role "
    "the application connects as) and REDIS_URL."
)
