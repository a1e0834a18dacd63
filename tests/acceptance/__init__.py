"""The promises as an outsider checks them: over HTTP, judged by the provider's books."""
