"""Storage: SQL, sealed files, keys, object storage and file shares. Start reading at `sql.db`."""
