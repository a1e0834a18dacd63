"""How values are written for people. Pure: no database, no request, no HTML."""
