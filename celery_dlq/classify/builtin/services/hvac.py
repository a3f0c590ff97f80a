"""hvac, the client of HashiCorp Vault: hvac/exceptions.py, one class for each status."""

from celery_dlq.classify.table import terminal, transient, within

ROWS = (
    # 429, 502, and 503: sealed, or down for maintenance (developer.hashicorp.com/vault/api-docs).
    transient("vault.answer", *within("hvac.exceptions", "RateLimitExceeded BadGateway VaultDown")),
    terminal("vault.answer", "hvac.exceptions.VaultError"),
)
